// Command read-yaml reads YAML as kubectl does: for each line of standard input, a JSON string with one YAML document, it prints a line
// of JSON with the document's `json`, or with the `error`.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"

	"sigs.k8s.io/yaml"
)

type result struct {
	JSON  json.RawMessage `json:"json,omitempty"`
	Error string          `json:"error,omitempty"`
}

func main() {
	decoder, encoder := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var text string
		if err := decoder.Decode(&text); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		document, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			err = encoder.Encode(result{Error: err.Error()})
		} else {
			err = encoder.Encode(result{JSON: document})
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}
