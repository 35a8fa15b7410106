"""Words of other languages for the names in the vocabulary.

The languages are German, French, Spanish, Portuguese, Italian, Russian, Chinese, Japanese and Korean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_LANGUAGES: Mapping[str, str] = {
    "epoch": "epoche époque epoque época epoca 轮 轮次 轮数 周期 エポック 에폭 에포크 эпоха эпохи эпоху",
    "epochs": "epochen époques épocas epoche эпох",
    "step": "schritt étape etape pas paso passo 步 步数 步骤 ステップ 스텝 단계 шаг шага",
    "steps": "schritte étapes pasos passos passi шагов",
    "iteration": "itération iteración iteração iterazione 迭代 迭代次数 イテレーション 反復 반복 итерация итерации",
    "batch": "批次 バッチ 배치 батч",
    "loss": "verlust perte pérdida perdida perda perdita 损失 损失值 損失 손실 потери потеря потерь лосс ошибка ℒ",
    "train loss": "trainingsverlust",
    "val loss": "validierungsverlust",
    "test loss": "testverlust",
    "lr": "lernrate 学习率 学習率 학습률",
    "speed": "geschwindigkeit vitesse velocidad velocidade velocità 速度 속도 скорость",
    "rate": "taux tasa taxa tasso",
    "learning": "apprentissage aprendizaje aprendizado aprendizagem apprendimento обучения",
    "reward": "belohnung récompense recompensa ricompensa 奖励 報酬 보상 награда",
    "accuracy": "genauigkeit précision exactitude exactitud precisión acurácia 准确率 精度 정확도 точность",
    "error": "fehler",
    "average": "durchschnittlicher mittlerer moyenne media média promedio 平均 평균 средняя средний",
    "train": "entraînement entrenamiento treino treinamento addestramento 训练 訓練 학습 훈련 обучение тренировка",
    "test": "测试 テスト 테스트 тест",
    "eval": "评估 評価 평가 оценка",
    "validation": "validierung validación validação validazione 验证 検証 검증 валидация валидации",
}

TRANSLATIONS: Mapping[str, str] = {word: english for english, words in _LANGUAGES.items() for word in words.split()}
"""English names by the words of other languages."""

_UNSPACED = re.compile(r"[\u3041-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
_LONGEST_FIRST = sorted((word for word in TRANSLATIONS if _UNSPACED.match(word)), key=len, reverse=True)
_PARTS = re.compile("|".join((*_LONGEST_FIRST, r"[^\W_]")))


def is_unspaced(word: str) -> bool:
    """Return whether the word begins in a script that puts no spaces between words, or few: Chinese, Japanese, Korean."""
    return _UNSPACED.match(word) is not None


def translate(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words in English; a word of Chinese, Japanese or Korean may consist of several, such as `平均损失`."""
    parts = (part for word in words for part in (_PARTS.findall(word) if _UNSPACED.match(word) else (word,)))
    return tuple(english for part in parts for english in TRANSLATIONS.get(part, part).split())
