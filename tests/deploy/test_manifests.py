"""The Kubernetes manifests: valid by schema, restricted, and consistent across objects and with the server."""

import re
import shutil
from pathlib import Path

import kubernetes_validate
import pytest
import typer
import yaml

from deploy.demo.queries import rules
from deploy.grafana.panels import TARGET_TOKENS_PER_REPLICA
from deploy.prometheus import render as prometheus_rules
from dragoman.service.app import create_app
from dragoman.service.commands.main import cli
from dragoman.service.settings import Settings, describe, load_settings
from tests.api.fakes import FakeTranslator, fake_parts
from tests.deploy.manifests import (
    KUBERNETES,
    OVERLAYS,
    Manifest,
    need_kustomize,
    of_kind,
    pod_of,
    render,
    render_overlay,
    server_of,
    variables_of,
)

CUSTOM_KINDS = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}
SCHEMAS = ("1.27", "1.34")


@pytest.fixture(params=OVERLAYS)
def manifests(request: pytest.FixtureRequest) -> tuple[Manifest, ...]:
    need_kustomize()
    return render_overlay(request.param)


@pytest.fixture(params=["cpu", "gpu"])
def production(request: pytest.FixtureRequest) -> tuple[Manifest, ...]:
    need_kustomize()
    return render_overlay(request.param)


@pytest.mark.parametrize("version", SCHEMAS)
def test_every_object_matches_the_schema_of_its_kind(manifests: tuple[Manifest, ...], version: str) -> None:
    """A misspelt field is silently dropped by some API servers, and refused by others."""
    for manifest in manifests:
        if manifest["kind"] not in CUSTOM_KINDS:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_every_object_is_in_our_namespace(manifests: tuple[Manifest, ...]) -> None:
    """A generated object without one lands in whatever namespace is current, and the pods do not find it."""
    for manifest in manifests:
        assert manifest["kind"] == "Namespace" or manifest["metadata"]["namespace"] == "dragoman", manifest["metadata"]


def test_every_variable_is_a_setting_with_a_good_value(
    manifests: tuple[Manifest, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses to start with a misspelt setting: better to know now."""
    variables = variables_of(manifests)
    assert set(variables) <= {row.variable for row in describe()}
    for name, value in variables.items():
        if name != "DRAGOMAN_BUNDLES":  # a directory of the container
            monkeypatch.setenv(name, value)
    assert load_settings().host == "0.0.0.0"


def test_selectors_find_the_pods(manifests: tuple[Manifest, ...]) -> None:
    """Schemas do not see that a selector matches nothing."""
    labels = of_kind(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        of_kind(manifests, "Deployment")["spec"]["selector"]["matchLabels"],
        of_kind(manifests, "Service")["spec"]["selector"],
        of_kind(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        of_kind(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        *(each["labelSelector"]["matchLabels"] for each in pod_of(manifests)["topologySpreadConstraints"]),
    ]
    assert all(selector and selector.items() <= labels for selector in selectors)


def test_ports_are_called_by_names_that_exist(manifests: tuple[Manifest, ...]) -> None:
    """A name that no container port has routes nowhere."""
    server = server_of(manifests)
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert ports["http"] == int(variables_of(manifests)["DRAGOMAN_PORT"])
    used = {port["targetPort"] for port in of_kind(manifests, "Service")["spec"]["ports"]}
    used |= {server[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "readiness", "liveness")}
    ingress = of_kind(manifests, "NetworkPolicy")["spec"]["ingress"]
    used |= {port["port"] for rule in ingress for port in rule["ports"]}
    assert used <= set(ports)


def test_probes_ask_routes_that_exist(manifests: tuple[Manifest, ...]) -> None:
    """A probe of a path that is not served kills every pod."""
    paths = _paths()
    server = server_of(manifests)
    probes = [server[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    assert {probe["httpGet"]["path"] for probe in probes} <= paths
    assert server["livenessProbe"]["httpGet"]["path"] == "/healthz"  # readiness is 503 while draining
    assert server["readinessProbe"]["httpGet"]["path"] == "/readyz"


def _paths() -> set[str]:
    return set(create_app(Settings(watch=False), build=fake_parts(FakeTranslator())).openapi()["paths"])


def test_a_pod_may_drain_before_it_is_killed(manifests: tuple[Manifest, ...]) -> None:
    """Otherwise a rolling update cuts off requests."""
    variables = variables_of(manifests)
    drain, grace = (float(variables[f"DRAGOMAN_{name}_SECONDS"]) for name in ("DRAIN_DELAY", "GRACE"))
    assert pod_of(manifests)["terminationGracePeriodSeconds"] > drain + grace
    readiness = server_of(manifests)["readinessProbe"]
    assert drain >= readiness["periodSeconds"] * readiness["failureThreshold"]


def test_an_update_never_goes_below_the_wanted_replicas(manifests: tuple[Manifest, ...]) -> None:
    """Capacity is planned for all of them."""
    strategy = of_kind(manifests, "Deployment")["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxUnavailable": 0, "maxSurge": 1}


def test_pods_are_restricted(manifests: tuple[Manifest, ...]) -> None:
    """Under `enforce: restricted` the API server only warns about a bad Deployment, and then refuses its pods."""
    pod = pod_of(manifests)
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for volume in pod.get("volumes", ()):
        assert set(volume) & {"secret", "emptyDir", "persistentVolumeClaim"}, volume
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} <= set(container["resources"])
        assert not any("hostPort" in port for port in container.get("ports", ()))


def test_threads_are_not_more_than_cpus(manifests: tuple[Manifest, ...]) -> None:
    """A fraction of a CPU beyond the threads is throttled, not used; requests equal to limits in production."""
    limits = server_of(manifests)["resources"]["limits"]
    assert float(limits["cpu"]) == int(limits["cpu"])
    assert int(variables_of(manifests).get("DRAGOMAN_THREADS", 0)) <= int(limits["cpu"])


def test_images_are_pinned(production: tuple[Manifest, ...]) -> None:
    """`latest` changes under a rollback."""
    pod = pod_of(production)
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        assert ":" in container["image"].rpartition("/")[2]
        assert not container["image"].endswith(":latest")


def test_keys_come_from_a_secret(production: tuple[Manifest, ...]) -> None:
    """The file that the setting names is inside the mounted Secret."""
    mounts = {mount["name"]: mount["mountPath"] for mount in server_of(production)["volumeMounts"]}
    (secret,) = (volume for volume in pod_of(production)["volumes"] if "secret" in volume)
    assert secret["secret"]["secretName"] == "dragoman-keys"
    assert Path(variables_of(production)["DRAGOMAN_KEYS_FILE"]).parent == Path(mounts[secret["name"]])


def test_the_autoscaler_scales_our_deployment(production: tuple[Manifest, ...]) -> None:
    """And leaves the disruption budget something to take."""
    autoscaler, deployment = of_kind(production, "HorizontalPodAutoscaler")["spec"], of_kind(production, "Deployment")
    assert autoscaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"]  # it would undo the autoscaler's work at every apply
    assert autoscaler["minReplicas"] > of_kind(production, "PodDisruptionBudget")["spec"]["maxUnavailable"]
    assert autoscaler["maxReplicas"] > autoscaler["minReplicas"]


def test_the_adapter_knows_what_the_autoscaler_asks_for() -> None:
    """A metric that nobody serves is <unknown>, and nothing scales."""
    need_kustomize()
    adapter = yaml.safe_load((KUBERNETES / "prometheus-adapter" / "values.yaml").read_text())["rules"]
    served = {rule["name"]["as"] for kind in ("custom", "external") for rule in adapter[kind]}
    asked = of_kind(render_overlay("cpu"), "HorizontalPodAutoscaler")["spec"]["metrics"]
    names = {metric[kind]["metric"]["name"] for metric in asked for kind in ("pods", "external") if kind in metric}
    assert names == served
    recorded = {rule["record"] for rule in rules("record")}
    series = {rule["seriesQuery"].split("{")[0] for kind in ("custom", "external") for rule in adapter[kind]}
    assert series <= recorded


def test_hpa_keda_and_dashboard_have_one_target() -> None:
    """Three places say what a replica holds; they must say the same."""
    need_kustomize()
    autoscaler = of_kind(render_overlay("cpu"), "HorizontalPodAutoscaler")["spec"]
    keda = yaml.safe_load((KUBERNETES / "components" / "keda" / "scaledobject.yaml").read_text())["spec"]
    tokens, wait = (trigger["metadata"] for trigger in keda["triggers"])
    assert autoscaler["metrics"][0]["pods"]["target"]["averageValue"] == tokens["threshold"]
    assert int(tokens["threshold"]) == TARGET_TOKENS_PER_REPLICA
    assert autoscaler["metrics"][1]["external"]["target"]["value"] == f"{float(wait['threshold']) * 1000:.0f}m"
    assert keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == autoscaler["behavior"]


def test_prometheus_finds_the_service(production: tuple[Manifest, ...]) -> None:
    """ServiceMonitor to Service: by label, and by the port's name."""
    monitor, service = of_kind(production, "ServiceMonitor")["spec"], of_kind(production, "Service")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["path"] in _paths()
    assert service["metadata"]["name"] == "dragoman"  # the operator's `job`, which every rule selects by


def test_the_prometheus_rule_is_what_promtool_tested() -> None:
    """Written by deploy/prometheus/render.py; a change of one file only is an error."""
    assert prometheus_rules.TARGET.read_text() == prometheus_rules.render()


@pytest.mark.parametrize("component", ["bundles-volume", "bundles-image", "bundles-pull", "keda"])
def test_every_component_fits_the_base(component: str, tmp_path: Path) -> None:
    """Those that no overlay uses must render too."""
    need_kustomize()
    shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    overlay = tmp_path / "kubernetes" / "overlays" / component
    overlay.mkdir()
    content = {"namespace": "dragoman", "resources": ["../../base"], "components": [f"../../components/{component}"]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(content))
    manifests = render(overlay)
    for manifest in manifests:
        if manifest["kind"] not in CUSTOM_KINDS:
            kubernetes_validate.validate(manifest, "1.34", strict=True)
    test_pods_are_restricted(manifests)
    assert set(variables_of(manifests)) <= {row.variable for row in describe()}


def test_the_pulling_container_runs_a_command_that_exists(tmp_path: Path) -> None:
    """Its options are those of `dragoman pull`, its variables are in its ConfigMap, and the network lets it out."""
    need_kustomize()
    shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    overlay = tmp_path / "kubernetes" / "overlays" / "pulling"
    overlay.mkdir()
    content = {"namespace": "dragoman", "resources": ["../../base"], "components": ["../../components/bundles-pull"]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(content))
    manifests = render(overlay)
    (container,) = pod_of(manifests)["initContainers"]
    name = container["envFrom"][0]["configMapRef"]["name"]
    (values,) = (each["data"] for each in manifests if each["metadata"]["name"] == name)
    command, *arguments = [re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], each) for each in container["args"]]
    assert command == "pull"
    parsed = typer.main.get_command(cli).commands["pull"].make_context("pull", arguments).params
    assert (parsed["to"], parsed["registry"]) == (Path(variables_of(manifests)["DRAGOMAN_BUNDLES"]), "mozilla")
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(parsed["to"]), str(parsed["cache"].parent)} <= mounted  # the root is read-only
    ports = {port["port"] for rule in of_kind(manifests, "NetworkPolicy")["spec"]["egress"] for port in rule["ports"]}
    assert ports == {53, 443}


def test_no_custom_resources_for_a_local_cluster() -> None:
    """A cluster without their definitions refuses the whole apply."""
    need_kustomize()
    assert not {manifest["kind"] for manifest in render_overlay("local")} & CUSTOM_KINDS
