import pytest

from medtasks.errors import JudgeNotConfigured, JudgeRefused, UnknownName
from medtasks.judges.judge_client import JudgeSettings, check_access, settings_from_environment
from medtasks.net.servers import origin

from ..tables import each_row, tables_of

TABLES = tables_of(__file__)

REMOTE = {
    "MEDTASKS_JUDGE_BASE_URL": "https://api.openai.com/v1/",
    "MEDTASKS_JUDGE_MODEL": " gpt-4o ",
    "MEDTASKS_JUDGE_API_KEY": "sk-secret\n",
}
LOCAL = {"MEDTASKS_JUDGE_BASE_URL": "http://localhost:8000/v1", "MEDTASKS_JUDGE_MODEL": "m"}


def settings_at(url):
    return JudgeSettings(base_url=url, model="m")


def test_defaults_and_optional_variables():
    settings = settings_from_environment(REMOTE)
    assert settings == JudgeSettings(
        "https://api.openai.com/v1", "gpt-4o", "sk-secret", 0.0, 4, 60.0, 5, 2
    )
    assert settings.api_key not in repr(settings) + str(settings)
    optional = {
        "TEMPERATURE": "0.7",
        "CONCURRENCY": "2",
        "TIMEOUT": "1.5",
        "ATTEMPTS": "3",
        "REASKS": "0",
    }
    optional |= {"MAX_REQUESTS": "7"}
    assert settings_from_environment(LOCAL).api_key == ""
    with pytest.raises(JudgeNotConfigured, match="MEDTASKS_JUDGE_API_KEY is not set"):
        settings_from_environment(
            {name: text for name, text in REMOTE.items() if "KEY" not in name}
        )
    settings = settings_from_environment(
        LOCAL | {f"MEDTASKS_JUDGE_{name}": text for name, text in optional.items()}
    )
    assert settings == JudgeSettings("http://localhost:8000/v1", "m", "", 0.7, 2, 1.5, 3, 0, 7)


@each_row("environ, named", TABLES["missing_variables_are_named_with_an_example"])
def test_missing_variables_are_named_with_an_example(environ, named):
    with pytest.raises(JudgeNotConfigured) as caught:
        settings_from_environment(environ)
    message = str(caught.value)
    for part in [*named, "https://api.openai.com/v1", "gpt-4o"]:
        assert part in message
    assert "\n" not in message
    assert not message.endswith(".")  # the harness writes on behind it


@each_row("name, text, sentence", TABLES["bad_values_are_refused_in_one_sentence"])
def test_bad_values_are_refused_in_one_sentence(name, text, sentence):
    with pytest.raises(JudgeNotConfigured, match=sentence) as caught:
        settings_from_environment(LOCAL | {f"MEDTASKS_JUDGE_{name}": text})
    assert f"MEDTASKS_JUDGE_{name}" in str(caught.value)


@each_row("url", TABLES["urls_that_could_hide_something_are_refused_unquoted"])
def test_urls_that_could_hide_something_are_refused_unquoted(url):
    with pytest.raises(JudgeNotConfigured, match="MEDTASKS_JUDGE_BASE_URL") as caught:
        settings_at(url)
    assert "secret" not in str(caught.value)
    for key in ("sk secret", "sk-\u00e9", "sk\x00secret"):  # no header can hold it
        with pytest.raises(JudgeNotConfigured, match="MEDTASKS_JUDGE_API_KEY") as caught:
            settings_from_environment(REMOTE | {"MEDTASKS_JUDGE_API_KEY": key})
        assert key not in str(caught.value)


def test_the_override_counts_for_the_named_dataset_alone(monkeypatch):
    settings = settings_at("https://api.openai.com/v1")
    for access in ("public", "gated"):
        check_access(settings, access, "d", environ={})
    with pytest.raises(UnknownName, match="did you mean 'credentialed'"):
        check_access(settings, "credentialled", "mimic", environ={})
    check_access(
        settings, "credentialed", "mimic", environ={"MEDTASKS_JUDGE_ALLOW_REMOTE": "mimic"}
    )
    for value in ["1", "true", "other", "", "mimic,other"]:
        monkeypatch.setenv("MEDTASKS_JUDGE_ALLOW_REMOTE", value)
        with pytest.raises(JudgeRefused):
            check_access(settings, "credentialed", "mimic")
    with pytest.raises(JudgeRefused):
        check_access(
            settings, "credentialed", "", environ={"MEDTASKS_JUDGE_ALLOW_REMOTE": "mimic"}
        )


@each_row(
    "url, trusted",
    TABLES["credentialed_text_may_go_to_this_machine_and_to_the_judge_that_is_named"],
)
def test_credentialed_text_may_go_to_this_machine_and_to_the_judge_that_is_named(url, trusted):
    check_access(
        settings_at(url), "credentialed", "mimic", environ={"MEDTASKS_TRUSTED_JUDGE": trusted}
    )


@each_row("url, trusted", TABLES["credentialed_text_goes_nowhere_else"])
def test_credentialed_text_goes_nowhere_else(url, trusted):
    with pytest.raises(JudgeRefused, match="'mimic' is credentialed") as caught:
        check_access(
            settings_at(url),
            "credentialed",
            "mimic",
            environ={"MEDTASKS_TRUSTED_JUDGE": trusted},
        )
    message = str(caught.value)
    assert "MEDTASKS_JUDGE_ALLOW_REMOTE=mimic" in message
    assert f"MEDTASKS_TRUSTED_JUDGE={origin(url)}" in message
    assert "\n" not in message


@each_row(
    "trusted",
    [
        "judge.example",
        "1",
        "*",
        "https://user:secret@judge.example/v1",
        "https://judge.example/v1?key=secret",
    ],
)
def test_a_trust_that_names_no_endpoint_opens_nothing(trusted):
    environ = {"MEDTASKS_TRUSTED_JUDGE": trusted}
    with pytest.raises(JudgeRefused, match="MEDTASKS_TRUSTED_JUDGE must look like") as caught:
        check_access(
            settings_at("https://judge.example/v1"), "credentialed", "mimic", environ=environ
        )
    assert "secret" not in str(caught.value)
    check_access(settings_at("https://judge.example/v1"), "public", "slake", environ=environ)
