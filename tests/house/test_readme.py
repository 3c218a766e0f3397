"""Every command in the README runs, in its order, on the files that the README shows."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.corpus import english

pytestmark = pytest.mark.slow
# Commands that other tests, CI or the reader's cluster run.
ELSEWHERE = {
    "make demo": "demo/run.py runs these very commands",
    "make test": "runs this test",
    "spark-submit --master spark://HOST:7077 --py-files dist/corpusmill.zip jobs/clean.py recipe.yaml": "test_cluster",
}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(text: str) -> list[str]:
    lines = [line.split("  #")[0].strip() for block in blocks(text, "sh") for line in block.splitlines()]
    return [line for line in lines if line]


def test_the_commands_of_the_readme_run(root: Path, tmp_path: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    for block in blocks(text, "yaml"):
        name = re.match(r"# (\S+\.yaml)\n", block)
        assert name, "a YAML block of the README names its file in the first line"
        (tmp_path / name.group(1)).write_text(block, encoding="utf-8")
    (tmp_path / "data").mkdir()
    rng = random.Random(1)
    lines = [json.dumps({"text": english(rng, 120)}) for _ in range(400)]
    (tmp_path / "data" / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = []
    for command in commands(text):
        if command in ELSEWHERE:
            continue
        result = subprocess.run(
            shlex.split(command), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
        )
        assert result.returncode == 0, f"{command}\n{result.stdout[-2000:]}\n{result.stderr[-3000:]}"
        ran.append(command.split()[0])
    assert set(ran) == {"prep", "train", "deepspeed"}
    summary = json.loads((tmp_path / "out" / "train" / "summary.json").read_text())
    assert summary
    from transformers import AutoModelForCausalLM, AutoTokenizer

    export = str(tmp_path / "out" / "train" / "export")
    tokenizer, model = AutoTokenizer.from_pretrained(export), AutoModelForCausalLM.from_pretrained(export)
    ids = tokenizer("ba", return_tensors="pt")["input_ids"]
    assert model.generate(input_ids=ids, max_new_tokens=3, do_sample=False).shape[1] > ids.shape[1]
