package journald

import (
	"errors"
	"testing"
)

func TestParseJSON(t *testing.T) {
	var e Entry
	err := ParseJSON([]byte(`{"__REALTIME_TIMESTAMP":"1","__CURSOR":"s=1","MESSAGE":[97,10,98,255],"SYSLOG_IDENTIFIER":["a","b"],"OTHER":null,"_TRANSPORT":"kernel"}`), &e)
	if err != nil || string(e.Message) != "a\nb\xff" || string(e.Identifier) != "a" || e.Realtime != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	for _, bad := range []string{``, `{}`, `[]`, `{"MESSAGE":"x"}`, `{"__REALTIME_TIMESTAMP":"soon"}`, `{"__REALTIME_TIMESTAMP":{}}`, `{"__REALTIME_TIMESTAMP":"1","MESSAGE":[70000]}`} {
		if err := ParseJSON([]byte(bad), &e); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
