"""The texts of system errors (glibc `strerror`) in the languages that shells and commands print them in."""

from __future__ import annotations

import re

NO_SPACE = (
    "No space left on device",
    "Auf dem Gerät ist kein Speicherplatz mehr verfügbar",
    "Aucun espace disponible sur le périphérique",
    "No queda espacio en el dispositivo",
    "Não há espaço disponível no dispositivo",
    "Spazio esaurito sul device",
    "На устройстве не осталось свободного места",
    "设备上没有空间",
    "デバイスに空き領域がありません",
    "장치에 남은 공간이 없음",
)
NO_PERMISSION = (
    "Permission denied",
    "Keine Berechtigung",
    "Permission non accordée",
    "Permiso denegado",
    "Permissão negada",
    "Permesso negato",
    "Отказано в доступе",
    "权限不够",
    "許可がありません",
    "허가 거부",
)
NO_FILE = (
    "No such file or directory",
    "Datei oder Verzeichnis nicht gefunden",
    "Aucun fichier ou dossier de ce type",
    "Aucun fichier ou dossier de ce nom",
    "No existe el fichero o el directorio",
    "No existe el archivo o el directorio",
    "Arquivo ou diretório inexistente",
    "File o directory non esistente",
    "Нет такого файла или каталога",
    "没有那个文件或目录",
    "そのようなファイルやディレクトリはありません",
    "그런 파일이나 디렉터리가 없습니다",
)


def join_texts(texts: tuple[str, ...]) -> str:
    """Return a pattern that matches any of the texts."""
    return f"(?:{'|'.join(map(re.escape, texts))})"
