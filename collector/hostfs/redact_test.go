package hostfs

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestRedact(t *testing.T) {
	for args, want := range map[string]string{
		"mysqld|--password=hunter2|--port=3306":                      "mysqld|--password=[redacted]|--port=3306",
		"mysql|--password|hunter2|db":                                "mysql|--password|[redacted]|db",
		"app|--db-pass|hunter2":                                      "app|--db-pass|[redacted]",
		"app|-token=abc|-v":                                          "app|-token=[redacted]|-v",
		"app|--accessToken=abc":                                      "app|--accessToken=[redacted]",
		"env|AWS_SECRET_ACCESS_KEY=abc|PGPASSWORD=x|HOME=/root|psql": "env|AWS_SECRET_ACCESS_KEY=[redacted]|PGPASSWORD=[redacted]|HOME=/root|psql",
		"sh|-c|exec mysql --password=hunter2 -h db":                  "sh|-c|exec mysql --password=[redacted] -h db",
		"app|postgres://web:hunter2@db:5432/shop":                    "app|postgres://web:[redacted]@db:5432/shop",
		"curl|-H|Authorization: Bearer abc.def|https://x":            "curl|-H|Authorization: [redacted]|https://x",
		"sh|-c|curl -H 'Authorization: Bearer abc' https://x":        "sh|-c|curl -H 'Authorization: [redacted]' https://x",
		"sh|-c|curl -H 'Cookie: a=\"x\"; b=hunter2' https://x\nls":   "sh|-c|curl -H 'Cookie: [redacted]' https://x\nls",
		"curl|-H|Cookie: a=\"x\"; b=hunter2":                         "curl|-H|Cookie: [redacted]",
		"curl|-u|admin:hunter2|https://x":                            "curl|-u|admin:[redacted]|https://x",
		"app|eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhYmMifQ.c2lnbmF0dXJl":   "app|[redacted]",
		"docker|run|--env=PGPASSWORD=hunter2|--env=TZ=UTC":           "docker|run|--env=PGPASSWORD=[redacted]|--env=TZ=UTC",
		"docker|run|--env=PGPASSWORD=hun,ter2]x":                     "docker|run|--env=PGPASSWORD=[redacted]",
		"helm|--set=auth.password=hunter2,image.tag=5":               "helm|--set=auth.password=[redacted],image.tag=5",
		"curl|https://x/?access_token=hunter2":                       "curl|https://x/?access_token=[redacted]",
		"app|Server=db;User Id=x;Password=hunter2":                   "app|Server=db;User Id=x;Password=[redacted]",
		"app|Server=db;Password=hun;ter2;Port=1":                     "app|Server=db;Password=[redacted];Port=1",
		`app|{"password":"hunter2","name":"web"}`:                    `app|{"password":"[redacted]","name":"web"}`,
		// Values that are not secrets stay: people look for them.
		"kubelet|--token-file=/var/run/token|--tls-private-key-file=/x.key":   "kubelet|--token-file=/var/run/token|--tls-private-key-file=/x.key",
		"llm|--max-tokens=4096|--tokenizer=bpe|--bypass=true":                 "llm|--max-tokens=4096|--tokenizer=bpe|--bypass=true",
		"kubelet|--feature-gates=CredentialProviders=true,PodPidsLimit=false": "kubelet|--feature-gates=CredentialProviders=true,PodPidsLimit=false",
		"app|--password-file|/run/secrets/db":                                 "app|--password-file|/run/secrets/db",
		"app|--secret=/run/secrets/db":                                        "app|--secret=/run/secrets/db",
		"app|--password|--verbose":                                            "app|--password|--verbose",
		"java|-Xmx4g|-Dspring.datasource.password=x|-jar|a.jar":               "java|-Xmx4g|-Dspring.datasource.password=[redacted]|-jar|a.jar",
	} {
		if got := strings.Join(Redact(strings.Split(args, "|")), "|"); got != want {
			t.Errorf("%s\n got %s\nwant %s", args, got, want)
		}
	}
}

func TestRedactText(t *testing.T) {
	for text, want := range map[string]string{
		"password: hunter2\nuser: web\n":                                              "password: [redacted]\nuser: web\n",
		`{"token":"hunter2","name":"web"}`:                                            `{"token":"[redacted]","name":"web"}`,
		`level=WARN msg=refused error="dial: Authorization: Bearer abc"`:              `level=WARN msg=refused error="dial: Authorization: [redacted]"`,
		"curl: Authorization: hunter2 refused\nnext line":                             "curl: Authorization: [redacted]\nnext line",
		"X-Vault-Token: hunter2":                                                      "X-Vault-Token: [redacted]",
		"client-key-data: aHVudGVyMg==\nclient-certificate: /etc/x.crt\n":             "client-key-data: [redacted]\nclient-certificate: /etc/x.crt\n",
		"exec mysql --password hunter2 -h db":                                         "exec mysql --password [redacted] -h db",
		"command: [/bin/check, --password=hunter2, -v]":                               "command: [/bin/check, --password=[redacted], -v]",
		`secret = "hunter2 and more"`:                                                 `secret = "[redacted]"`,
		"GET https://web:hunter2@db/x?token=abc":                                      "GET https://web:[redacted]@db/x?token=[redacted]",
		"-----BEGIN EC PRIVATE KEY-----\nMHcC\nAQ==\n-----END EC PRIVATE KEY-----\nx": "[redacted]\nx",
		"MHcC\nAQ==\n-----END EC PRIVATE KEY-----\nx":                                 "[redacted]\nx",
		"  bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhYmMifQ.c2ln ":                      "  bearer [redacted] ",
		// A log line that quotes a message, and one that quotes such a line.
		`error="403: {\"token\":\"hunter2\",\"name\":\"web\"}"`:   `error="403: {\"token\":\"[redacted]\",\"name\":\"web\"}"`,
		`error="bad argument --password=\"hunter2 x\" of web"`:    `error="bad argument --password=\"[redacted]\" of web"`,
		`text="error=\"403: {\\\"token\\\":\\\"hunter2\\\"}\" x"`: `text="error=\"403: {\\\"token\\\":\\\"[redacted]\\\"}\" x"`,
		`error="{\"token\":\"a\\\"hunter2\"}"`:                    `error="{\"token\":\"[redacted]\"}"`,
		// A text that was cut.
		`{"name":"web","token":"hunter2 an`:         `{"name":"web","token":"[redacted]"`,
		`token: 'hunter2 an`:                        `token: '[redacted]'`,
		`error="{\"token\":\"hunter2 an` + "\nnext": `error="{\"token\":\"[redacted]\"` + "\nnext",
		// Quoted values behind a flag, and of an object with a name.
		"sh -c 'mysql --password \"hunter2 and\" -h db'":     "sh -c 'mysql --password \"[redacted]\" -h db'",
		"curl -u 'web:hunter2 and' --user \"1 2\" https://x": "curl -u 'web:[redacted]' --user \"1 2\" https://x",
		`{"name":"DB_PASSWORD","value":"hunter2"}`:           `{"name":"DB_PASSWORD","value":"[redacted]"}`,
		`{"name":"TOKEN_FILE","value":"a"}`:                  `{"name":"TOKEN_FILE","value":"a"}`,
		`{"name":"web","value":"a"}`:                         `{"name":"web","value":"a"}`,
		// A header extends to the end of its line, or of the quotation around it: quotes within its
		// value end nothing.
		"Cookie: a=\"x\"; b=hunter2\nnext line":                                                      "Cookie: [redacted]\nnext line",
		"can't go on: Cookie: a='x'; b=hunter2":                                                      "can't go on: Cookie: [redacted]",
		`map[Cookie:[a="x"; b=hunter2]]`:                                                             `map[Cookie: [redacted]`,
		`error="refused: Cookie: a=\"x\"; b=hunter2" status=403`:                                     `error="refused: Cookie: [redacted]" status=403`,
		`text="error=\"Cookie: a=\\\"x\\\"; b=hunter2\" of web" pid=7`:                               `text="error=\"Cookie: [redacted]\" of web" pid=7`,
		`curl -H 'Cookie: a="x"; b=hunter2' -H "X-Api-Key: a='x' hunter2" https://x`:                 `curl -H 'Cookie: [redacted]' -H "X-Api-Key: [redacted]" https://x`,
		`cmd="curl -H 'Cookie: a=\"x\"; b=hunter2' https://x" of="web" msg='X-Vault-Token: hunter2'`: `cmd="curl -H 'Cookie: [redacted]' https://x" of="web" msg='X-Vault-Token: [redacted]'`,
		"dial redis://u:p@ss@h/0: refused, ask a@b":                                                  "dial redis://u:[redacted]@h/0: refused, ask a@b",
		"--password=hun,ter2 -v":                                                                     "--password=[redacted] -v",
		"--password=hun;a=ter2 -v":                                                                   "--password=[redacted] -v",
		`cmd="mysql --password=hun,ter2" name=web`:                                                   `cmd="mysql --password=[redacted]" name=web`,
		`{"cmd":"mysql --password=hun,b=ter2","name":"web"}`:                                         `{"cmd":"mysql --password=[redacted]","name":"web"}`,
		`["mysql","--password=hunter2","-v"]`:                                                        `["mysql","--password=[redacted]","-v"]`,
		"[mysql --password=hunter2]":                                                                 "[mysql --password=[redacted]]",
		// Values that are not secrets stay.
		`error="403: {\"code\":\"x\"} of {\"tokenFile\":\"/a\"}"`:            `error="403: {\"code\":\"x\"} of {\"tokenFile\":\"/a\"}"`,
		"token-file: /var/run/token\nsecretName: web\nkeep-attached: true\n": "token-file: /var/run/token\nsecretName: web\nkeep-attached: true\n",
		"time=10:00:00 level=INFO msg=watching programs=21":                  "time=10:00:00 level=INFO msg=watching programs=21",
		"": "",
	} {
		if got := RedactText(text); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// Lines that pass the quick check contain no secret by any rule.
func TestMayHaveSecret(t *testing.T) {
	for _, name := range secretNames() {
		if !isSecret(name) || !mayHaveSecret("x "+name+"=hunter2") {
			t.Error(name)
		}
	}
	for _, text := range []string{"x-vault-key: a", "Proxy-Authorization: a", "curl -u a:b", "a --user a:b", "Basic YTpi", "https://a:b@c", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhYmMifQ"} {
		if !mayHaveSecret(text) {
			t.Error(text)
		}
	}
	if mayHaveSecret("time=10:00:00 level=INFO msg=watching programs=21") {
		t.Error("a line without one")
	}
}

// A long command line is cut, possibly within a URL.
func TestCutCommandLineHasNoSecrets(t *testing.T) {
	for end, want := range map[string]string{
		"postgres://web:hunter2@db/shop": " postgres://web:[redacted]@db/shop",
		"postgres://web:hunter2":         " postgres://web:[redacted]",
		"postgres://web:hun@ter2":        " postgres://web:[redacted]",
		"http://web:80\x00--verbose":     " http://web:80 --verbose",
	} {
		fill := maxCmdline + 2 - len(end) - 1
		got := parseCmdline([]byte(strings.Repeat("x", fill) + "\x00" + end))
		if want = strings.Repeat("x", fill) + want; !strings.HasPrefix(want, strings.TrimSuffix(got, "…")) || strings.Contains(got, "hun") {
			t.Errorf("%s: got …%s", end, got[fill:])
		}
	}
}

// The command line read from a real process contains no secret.
func TestCommandLinesHaveNoSecrets(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read x", "sh", "--password=hunter2", "--name=web")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	testenv.Until(t, "the command line", 10*time.Second, func() bool {
		text, err := New("/").Cmdline(cmd.Process.Pid)
		if strings.Contains(text, "hunter2") {
			t.Fatalf("it has the secret: %s", text)
		}
		return err == nil && strings.HasSuffix(text, "--password=[redacted] --name=web")
	})
}
