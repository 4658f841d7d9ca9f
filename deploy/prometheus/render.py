"""`python deploy/prometheus/render.py`: write the rules as the PrometheusRule of the Kubernetes base.

The operator wants them inside a resource, promtool and compose as plain files; the files are the source.
"""

from pathlib import Path

import yaml

HERE = Path(__file__).parent
RULES = (HERE / "recording.rules.yaml", HERE / "alerts.rules.yaml")
TARGET = HERE.parent / "kubernetes" / "base" / "prometheusrule.yaml"
HEADER = "# Written by deploy/prometheus/render.py from deploy/prometheus/*.rules.yaml; change those.\n"


def render() -> str:
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "dragoman", "namespace": "dragoman", "labels": {"app.kubernetes.io/name": "dragoman"}},
        "spec": {"groups": groups},
    }
    return HEADER + yaml.safe_dump(resource, sort_keys=False, width=1000)


if __name__ == "__main__":
    TARGET.write_text(render())
