"""What images there are, and what each is made of."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import materials

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
CLIENTS = REPOSITORY / "e2e" / "clients"

BASE = "localhost/kraftbridge-base:bookworm"
KAFKA = "localhost/kraftbridge-kafka:3.9.1"
CONTROLLERS_RELEASE = "3.9.2"
"""The default of ``spec.controllers.image``."""
RELEASES = HERE / "kafka-release"
SPARK = "localhost/kraftbridge-spark:4.1.4"


@dataclass(frozen=True)
class Image:
    """One image: how it is built and which files decide whether it has to be built again."""

    name: str
    reference: str
    dockerfile: Path
    inputs: tuple[Path, ...]
    context: Callable[[], Path]
    target: str | None = None
    arguments: dict[str, str] = field(default_factory=dict)
    extra_contexts: dict[str, Callable[[], Path]] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    loaded: bool = True
    """Whether the cluster runs it; the others only serve as a base."""


def project_version() -> str:
    """Return the version that pyproject.toml states."""
    return str(tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"])


def in_repository(*names: str) -> tuple[Path, ...]:
    """Return paths below the top of the repository."""
    return tuple(REPOSITORY / name for name in names)


def catalog() -> dict[str, Image]:
    """Return every image by its short name, each after those that it needs."""
    top = REPOSITORY / "Dockerfile"
    code = in_repository("Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "operator/kraftbridge", "crds")
    images = [
        Image(
            name="base",
            reference=BASE,
            dockerfile=HERE / "base" / "Dockerfile",
            inputs=(HERE / "base",),
            context=materials.debian_root,
        ),
        Image(
            name="kafka",
            reference=KAFKA,
            dockerfile=HERE / "kafka" / "Dockerfile",
            inputs=(HERE / "kafka",),
            context=lambda: HERE / "kafka",
            extra_contexts={"libs": lambda: materials.kafka_jars(HERE / "kafka" / "pom.xml")},
            requires=("base",),
        ),
        _release("kafka-controllers", CONTROLLERS_RELEASE, target="release"),
        Image(
            name="operator",
            reference="localhost/kraftbridge-operator:dev",
            dockerfile=top,
            target="operator",
            inputs=(*code, *in_repository("agent", "requirements/runtime.lock")),
            context=lambda: REPOSITORY,
            arguments={"VERSION": project_version()},
            extra_contexts={"jars": materials.jmx_agent},
            requires=("base",),
        ),
        Image(
            name="spark",
            reference=SPARK,
            dockerfile=top,
            target="spark",
            inputs=in_repository("Dockerfile", "requirements/verifier.lock", "docker/java", "docker/spark-classes"),
            context=lambda: REPOSITORY,
            requires=("base",),
            loaded=False,
        ),
        Image(
            name="verifier",
            reference="localhost/kraftbridge-verifier:dev",
            dockerfile=top,
            target="verifier",
            inputs=(*code, *in_repository("agent", "docker")),
            context=lambda: REPOSITORY,
            arguments={"VERSION": project_version(), "SPARK": SPARK},
            requires=("base", "spark"),
        ),
        Image(
            name="spark-operator",
            reference="localhost/kraftbridge-spark-operator:2.5.2",
            dockerfile=HERE / "spark-operator" / "Dockerfile",
            inputs=(HERE / "spark-operator",),
            context=lambda: HERE / "spark-operator",
            arguments={"SPARK": SPARK},
            extra_contexts={"program": lambda: materials.cluster_program("spark-operator")},
            requires=("base", "spark"),
        ),
    ]
    if (CLIENTS / "Dockerfile").exists():
        images.append(
            Image(
                name="clients",
                reference="localhost/kraftbridge-clients:dev",
                dockerfile=CLIENTS / "Dockerfile",
                inputs=(CLIENTS,),
                context=lambda: CLIENTS,
                arguments={"KAFKA_IMAGE": KAFKA},
                requires=("base", "kafka"),
            )
        )
    return {image.name: image for image in images}


def former_images() -> dict[str, Image]:
    """Return the images of former releases of Kafka; each is built only where somebody names it."""
    releases = (RELEASES / "releases").read_text().split()
    return {f"kafka-{release}": _release(f"kafka-{release}", release, target="former") for release in releases}


def kafka4_images() -> dict[str, Image]:
    """Return the images of the releases to which a cluster goes on from 3.9; each is built only where somebody names it."""
    releases, pom = (RELEASES / "kafka4-releases").read_text().split(), RELEASES / "kafka4.pom.xml"
    return {f"kafka-{release}": _release(f"kafka-{release}", release, target="kafka4", pom=pom) for release in releases}


def _release(name: str, release: str, target: str, pom: Path = HERE / "kafka" / "pom.xml") -> Image:
    """Return the image of another release of Kafka."""
    return Image(
        name=name,
        reference=f"localhost/kraftbridge-kafka:{release}",
        dockerfile=RELEASES / "Dockerfile",
        target=target,
        inputs=(RELEASES, pom),
        context=lambda: RELEASES,
        arguments={"RELEASE": release, "KAFKA_IMAGE": KAFKA},
        extra_contexts={"libs": lambda: materials.kafka_jars(pom, release)},
        requires=("base", "kafka"),
    )


def vendors_images(vendor: Path) -> dict[str, Image]:
    """Return the images of the layouts' brokers: vendors' entrypoints on the jars of our Kafka image, from a folder outside the repository."""
    found = [
        Image(
            name=f"layout-{name}",
            reference=f"localhost/kraftbridge-layout-{name.partition('-')[0]}:{release}",
            dockerfile=vendor / "images" / name / "Dockerfile",
            inputs=(vendor / "images" / name,),
            context=lambda name=name: materials.owners_copy(vendor / "images" / name, name),
            requires=("base", *kafka),
        )
        for name, release, kafka in (
            ("bitnami", "3.9.1", ("kafka",)),
            ("confluent", "3.9.1", ("kafka",)),
            ("bitnami-3.4", "3.4.1", ("kafka", "kafka-3.4.1")),
        )
    ]
    found.append(
        Image(
            name="layout-kubectl",
            reference="localhost/kraftbridge-layout-kubectl:1",
            dockerfile=HERE / "kubectl" / "Dockerfile",
            inputs=(HERE / "kubectl",),
            context=lambda: HERE / "kubectl",
            extra_contexts={"program": lambda: materials.cluster_program("kubectl")},
            requires=("base",),
        )
    )
    return {image.name: image for image in found}


def with_requirements(names: list[str], images: dict[str, Image]) -> list[Image]:
    """Return the named images and what they need, in an order in which they can be built."""
    wanted = set(names or images)
    for name in reversed(list(images)):
        if name in wanted:
            wanted.update(images[name].requires)
    return [image for name, image in images.items() if name in wanted]
