"""The commands of docs/operations/kubernetes.md, as far as they need no cluster."""

import json
import os
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import helm_python
import yaml
from tests.architecture.documents import page
from tests.integration.chart.test_chart import CHART, pods
from tests.tools.page_commands import PageShell, blocks_of

PAGE: Final = page("kubernetes.md")
MANIFESTS: Final = "Topology by the operators"
HELM: Final = "Install and upgrade"
BLOCKS: Final = {block.section: block for block in blocks_of(PAGE)}


def values_of(command: list[str]) -> dict[str, Any]:
    """Return the values of the options `--set` of a command of Helm."""
    values: dict[str, Any] = {}
    for option, assignment in pairwise(command):
        if option == "--set":
            path, _, value = assignment.partition("=")
            *parents, name = path.split(".")
            level = values
            for each in parents:
                level = level.setdefault(each, {})
            level[name] = value
    return values


def test_page_has_the_commands_that_the_tests_run() -> None:
    assert BLOCKS.keys() == {MANIFESTS, HELM}


def test_command_writes_the_manifests_of_the_operators(tmp_path: Path) -> None:
    (tmp_path / "passwords.json").write_text(json.dumps({"acme": "an-example-password-of-a-test"}))
    shell = PageShell(
        folder=tmp_path,
        variables={"PYTHONPATH": os.pathsep.join(sys.path)},
        programs=[Path(sys.executable).parent],
    )

    shell.run(BLOCKS[MANIFESTS].text)

    text = (tmp_path / "bus.yaml").read_text()
    objects = [each for each in yaml.safe_load_all(text) if each]
    assert {"Exchange", "Queue", "User", "Permission"} <= {each["kind"] for each in objects}
    assert {each["metadata"]["namespace"] for each in objects} == {"harebell"}
    assert "an-example-password-of-a-test" not in text


def test_commands_of_helm_render_the_chart_with_the_image_of_the_page() -> None:
    install, upgrade = (shlex.split(line) for line in BLOCKS[HELM].text.splitlines())
    installed = values_of(install)
    image = {**installed["image"], **values_of(upgrade)["image"]}
    chart = helm_python.Chart.load(str(CHART))

    files = chart.render({**installed, "image": image}, name=install[2], namespace="harebell")

    assert install[:2] == ["helm", "install"]
    assert upgrade[:2] == ["helm", "upgrade"]
    assert {install[3], upgrade[3]} == {str(CHART.relative_to(CHART.parents[1]))}
    images = {
        container["image"]
        for pod in pods({**installed, "image": image})
        for container in pod["containers"]
    }
    assert images == {"registry.example/harebell:0.2.0"}
    assert files
