package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Change is one write in etcd: of an object or of its deletion.
type Change struct {
	Key     string // such as /registry/minions/NAME
	Value   []byte // as stored; empty if the object was deleted
	Version int64  // number of writes since the object was created, from 1
}

// EtcdChanges calls each for all writes in etcd from now on until the test ends, in order and from
// one goroutine, even while the API server is stopped. Unlike a watch of the API server, it never
// skips or merges writes over a restart.
func (s *Server) EtcdChanges(tb testing.TB, each func(Change)) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	// /registry/ and /registry0: the range ends before the next prefix.
	const request = `{"create_request": {"key": "L3JlZ2lzdHJ5Lw==", "range_end": "L3JlZ2lzdHJ5MA=="}}`
	answer, err := s.askEtcd(ctx, http.MethodPost, "/v3/watch", []byte(request)) //nolint:bodyclose // by who reads it
	if err != nil {
		tb.Fatal(err)
	}
	began, ended := make(chan struct{}), make(chan struct{})
	tb.Cleanup(func() {
		cancel()
		<-ended
	})
	go func() {
		defer close(ended)
		defer answer.Body.Close()
		if err := readChanges(json.NewDecoder(answer.Body), began, each); ctx.Err() == nil {
			tb.Errorf("watch of etcd: %v", err)
		}
	}()
	select {
	case <-began:
	case <-time.After(testenv.Within(sumWithin)):
		tb.Fatalf("etcd does not begin a watch: %s", answer.Status)
	}
}

// EtcdPut writes an object directly into etcd, in its stored form, under a key such as
// /registry/kernosis.io/diagnoses/NAMESPACE/NAME. It is for creating many objects.
func (s *Server) EtcdPut(ctx context.Context, key string, value []byte) error {
	body, err := json.Marshal(struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}{[]byte(key), value})
	if err != nil {
		return err
	}
	_, err = s.readEtcd(ctx, http.MethodPost, "/v3/kv/put", body)
	return err
}

// Writes counts what etcd has written since its start.
type Writes struct {
	Puts     int64 // objects written
	PutBytes int64 // keys and values of these
	Size     int64 // bytes of the database currently in use
}

// EtcdWrites returns what etcd has written so far.
func (s *Server) EtcdWrites(tb testing.TB) Writes {
	tb.Helper()
	text, err := s.readEtcd(tb.Context(), http.MethodGet, "/metrics", nil)
	if err != nil {
		tb.Fatal(err)
	}
	m := ParseMetrics(tb, text)
	return Writes{
		Puts:     int64(m.Sum("etcd_mvcc_put_total")),
		PutBytes: int64(m.Sum("etcd_debugging_mvcc_total_put_size_in_bytes")),
		Size:     int64(m.Sum("etcd_mvcc_db_total_size_in_use_in_bytes")),
	}
}

// readChanges reads etcd's watch responses until the stream ends.
func readChanges(from *json.Decoder, began chan<- struct{}, each func(Change)) error {
	for {
		var answer struct {
			Result struct {
				Created, Canceled bool
				Reason            string `json:"cancel_reason"`
				Events            []struct {
					KV struct {
						Key, Value []byte
						Version    int64 `json:",string"`
					}
				}
			}
			Error json.RawMessage
		}
		if err := from.Decode(&answer); err != nil {
			return err
		}
		if answer.Error != nil || answer.Result.Canceled {
			return fmt.Errorf("%s%s", answer.Error, answer.Result.Reason)
		}
		if answer.Result.Created {
			close(began)
		}
		for _, e := range answer.Result.Events {
			each(Change{Key: string(e.KV.Key), Value: e.KV.Value, Version: e.KV.Version})
		}
	}
}

// readEtcd returns etcd's whole response to a request.
func (s *Server) readEtcd(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	answer, err := s.askEtcd(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd, %s: %s: %s", path, answer.Status, bytes.TrimSpace(text))
	}
	return text, err
}

// askEtcd sends a request to etcd, on a connection that ends with the response.
func (s *Server) askEtcd(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://etcd"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.path("etcd.sock"))
	}}
	return transport.RoundTrip(r)
}
