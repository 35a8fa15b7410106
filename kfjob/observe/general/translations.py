"""Words of other languages for the names in the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping

_LANGUAGES: Mapping[str, str] = {
    "epoch": "epoche époque epoque época epoca 轮 轮次 轮数 周期 エポック 에폭",
    "epochs": "epochen",
    "step": "schritt étape etape paso 步 步数 步骤 ステップ 스텝",
    "steps": "schritte",
    "iteration": "itération iteración 迭代 迭代次数",
    "batch": "批次",
    "loss": "verlust perte pérdida perdida 损失 损失值 損失 손실",
    "train loss": "训练损失",
    "val loss": "验证损失",
    "test loss": "测试损失",
    "lr": "lernrate 学习率 学習率 학습률",
    "speed": "geschwindigkeit 速度",
    "reward": "belohnung 奖励",
    "accuracy": "genauigkeit précision exactitud 准确率 精度",
    "error": "fehler",
    "train": "训练",
    "val": "验证",
    "test": "测试",
    "eval": "评估",
    "validation": "validierung",
}

TRANSLATIONS: Mapping[str, str] = {word: english for english, words in _LANGUAGES.items() for word in words.split()}
"""English names by the words of German, French, Spanish, Chinese, Japanese and Korean programs."""
