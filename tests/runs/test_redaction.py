"""No secret in what a run writes about itself, and nothing else lost."""

from medtasks.runs.redaction import (
    is_secret_name,
    redacted,
    redacted_arguments,
    redacted_options,
    settings,
    without_home,
)

SECRETS = (
    *("model=m,api_key=PLANTED,max_new_tokens=8", "openai_api_key='PLANTED and more',x=1", "token=Bearer PLANTED"),
    *('headers={"Authorization": "Bearer PLANTED.more", "x": 1}', "hub_results_org=me,token=PLANTED"),
    *("base_url=https://user:PLANTED@host/v1", "base_url=https://host/v1?api_key=PLANTED&x=1"),
    *("--wandb-secret=PLANTED", "db_password=PLANTED,a=b", "x=sk-proj-PLANTED0123456789abc", "hf_PLANTED0123456789"),
    *("my-sk-model-sk-PLANTED0123456789abc", "x-eyJPLANTED0123-eyJ0123.PLANTED.abc", "AIzaPLANTED0123456789012345678"),
    "ghp_PLANTED0123456789012345",
)
OTHERS = (
    "pretrained=org/name,max_new_tokens=8,token_counts=true,tokenizer=org/t,batch_tokens=100",
    *("pretrained=/models/sk-medical-assistant,device_map=auto", "base_url=http://127.0.0.1:8000/v1,model=gpt-4o"),
    *("project=medical,job_type=eval,name=keyless run", "revision=0123456789012345678901234567890123456789"),
)


def test_secrets_go_and_everything_else_stays():
    assert [text for text in SECRETS if "PLANTED" in redacted(text) or "***" not in redacted(text)] == []
    assert [text for text in OTHERS if redacted(text) != text] == []


def test_secrets_of_the_environment_anywhere(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "PLANTED-VALUE")
    monkeypatch.setenv("SHORT_TOKEN", "a")
    monkeypatch.setenv("PWD", "/work/here")  # the working folder is no password
    assert redacted("run=PLANTED-VALUE-a") == "run=***-a"
    assert redacted("pretrained=/work/here/model") == "pretrained=/work/here/model"
    text = "model=m,api_key=PLANTED,headers={'X-Token': 'b c'}"
    assert redacted(redacted(text)) == redacted(text)


def test_a_secret_as_an_argument_of_its_own_and_the_data_folder(monkeypatch):
    given = ["--api-key", "PLANTED", "--model", "m", "--hf_token", "PLANTED", "--seed", "1", "--key=PLANTED"]
    hidden = ("--api-key", "***", "--model", "m", "--hf_token", "***", "--seed", "1", "--key=***")
    assert redacted_arguments(given) == hidden
    monkeypatch.setenv("MEDTASKS_HOME", "/clinic/patients")
    assert without_home("/clinic/patients/datasets/x is damaged") == "$MEDTASKS_HOME/datasets/x is damaged"
    assert redacted_arguments(["--output_path", "/clinic/patients/out"]) == ("--output_path", "$MEDTASKS_HOME/out")


def test_settings_options_and_names(tmp_path):
    public = {"MEDTASKS_JUDGE_MODEL": "gpt-4o", "MEDTASKS_JUDGE_BASE_URL": "http://127.0.0.1:1/v1"}
    public |= {"MEDTASKS_LOG_TEXT": "mimic"}
    private = {"MEDTASKS_HOME": "/clinic/patients", "MEDTASKS_WEIGHTS": str(tmp_path)}
    private |= {"MEDTASKS_JUDGE_API_KEY": "PLANTED"}
    assert settings(public | private | {"HF_TOKEN": "PLANTED"}) == public | dict.fromkeys(private, "***")
    given = {"limit": 0.5, "log_samples": True, "wandb_args": "api_key=PLANTED,project=x", "hf_token": "PLANTED"}
    hidden = {"limit": "0.5", "log_samples": "True", "wandb_args": "api_key=***,project=x", "hf_token": "***"}
    assert redacted_options(given) == hidden
    secret = ("HF_TOKEN", "api-key", "apiKey", "MEDTASKS_JUDGE_API_KEY", "password", "Authorization")
    plain = ("max_tokens", "tokenizer", "token_counts", "keys", "MEDTASKS_HOME")
    assert [name for name in secret if not is_secret_name(name)] == []
    assert [name for name in plain if is_secret_name(name)] == []
