package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/collector/display"
)

// What becomes of a token.
const (
	OutcomeAllowed     = "allowed"
	OutcomeUnknown     = "unknown"     // 401
	OutcomeForbidden   = "forbidden"   // 403
	OutcomeLimited     = "limited"     // 429: too many that nobody knows
	OutcomeUnavailable = "unavailable" // 503: the API server could not be asked
)

const (
	// refusedFor is how long whoever gets a right waits for it.
	refusedFor  = 10 * time.Second
	maxVerdicts = 1024
	// reviewWithin is how long the API server may take for the two questions together.
	reviewWithin = 5 * time.Second
	// RetrySoon is when to try again what the API server could not be asked for.
	RetrySoon = 5 * time.Second
	// MaxToken bounds a token.
	MaxToken = 16 << 10
)

// TokensConfig says how the API server is asked about tokens.
type TokensConfig struct {
	API kubernetes.Interface
	// Audience is who the tokens are for; empty: the API server itself.
	Audience string
	// Verb is what the user must be allowed on the path: of paths that are no resource, RBAC
	// has the methods of HTTP.
	Verb string
	// Allowed is how long a verdict holds that allows: a right that is taken away, and a
	// token that has ended, count so long.
	Allowed time.Duration
	// Kept is how long it holds while the API server can't be asked; 0: no longer.
	Kept time.Duration
	// Rate is how many unknown tokens a second the API server is asked about at most, and a
	// tenth of that for one address. Each costs it two requests.
	Rate int
	Log  *slog.Logger
}

// Verdict is whose a token is, and what became of it.
type Verdict struct {
	Outcome string
	User    string
	Why     string // for the sender; not of one that is allowed
}

// Tokens asks the API server about bearer tokens, and remembers its answers.
type Tokens struct {
	cfg       TokensConfig
	secret    []byte // so that what is remembered can't be looked up by a token
	verdicts  *cache.LRUExpireCache
	kept      *cache.LRUExpireCache // of those that were allowed
	flights   singleflight.Group
	all       *rate.Limiter
	addresses *Limiters
	report    rate.Sometimes
}

// NewTokens returns what asks the API server.
func NewTokens(c TokensConfig) (*Tokens, error) {
	t := &Tokens{
		cfg: c, secret: make([]byte, sha256.Size), verdicts: cache.NewLRUExpireCache(maxVerdicts), kept: cache.NewLRUExpireCache(maxVerdicts),
		all: rate.NewLimiter(rate.Limit(c.Rate), 2*c.Rate), report: rate.Sometimes{First: 1, Interval: 10 * time.Second},
	}
	if _, err := rand.Read(t.secret); err != nil {
		return nil, err
	}
	var err error
	each, burst := c.AddressRate()
	t.addresses, err = NewLimiters(maxAddresses, each, burst)
	return t, err
}

// AddressRate is how many unknown tokens of one address the API server is asked about a second,
// and at once.
func (c *TokensConfig) AddressRate() (each rate.Limit, burst int) {
	return rate.Limit(float64(c.Rate) / 10), max(c.Rate*4/10, 5)
}

// Verdict says what a token is good for at a path. after is when to try again, where that may help.
func (t *Tokens) Verdict(ctx context.Context, token, path, address string) (v Verdict, after time.Duration) {
	h := hmac.New(sha256.New, t.secret)
	h.Write([]byte(path + " " + token))
	key := string(h.Sum(nil))
	if known, ok := t.verdicts.Get(key); ok {
		if v, ok := known.(Verdict); ok {
			return v, 0
		}
	}
	// One that was allowed is asked about whatever the others do, as it may have been taken back:
	// there are few of these, each was valid once, and an answer holds for a while.
	if _, wasAllowed := t.kept.Get(key); !wasAllowed {
		for _, l := range []*rate.Limiter{t.addresses.Of(address), t.all} {
			if !l.Allow() {
				return Verdict{Outcome: OutcomeLimited}, RetrySoon
			}
		}
	}
	got, err, _ := t.flights.Do(key, func() (any, error) {
		// A flight may have ended since the look above.
		if known, ok := t.verdicts.Get(key); ok {
			return known, nil
		}
		// Others may wait for the same answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewWithin)
		defer cancel()
		v, err := t.review(ctx, token, path)
		if err != nil {
			return Verdict{}, err
		}
		lasts := refusedFor
		if v.Outcome == OutcomeAllowed {
			lasts = t.cfg.Allowed
			if t.cfg.Kept > 0 {
				t.kept.Add(key, v, t.cfg.Kept)
			}
		} else {
			t.kept.Remove(key)
		}
		t.verdicts.Add(key, v, lasts)
		return v, nil
	})
	v, _ = got.(Verdict)
	if err != nil {
		t.report.Do(func() { t.cfg.Log.Error("tokens can't be reviewed", "error", err) })
		return t.unasked(key)
	}
	return v, 0
}

// unasked is the verdict while the API server can't be asked: an earlier one that allows, which
// holds for a while without another question, or unavailable.
func (t *Tokens) unasked(key string) (Verdict, time.Duration) {
	if known, ok := t.kept.Get(key); ok {
		if v, ok := known.(Verdict); ok {
			t.verdicts.Add(key, v, refusedFor)
			return v, 0
		}
	}
	return Verdict{Outcome: OutcomeUnavailable}, RetrySoon
}

// review asks whose the token is, and what that user may do at the path.
func (t *Tokens) review(ctx context.Context, token, path string) (Verdict, error) {
	spec := authenticationv1.TokenReviewSpec{Token: token}
	if t.cfg.Audience != "" {
		spec.Audiences = []string{t.cfg.Audience}
	}
	r, err := t.cfg.API.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return Verdict{}, fmt.Errorf("token review: %w", err)
	}
	// An authenticator that knows no audiences names none: then the token is for the API
	// server, and not for us to take, unless we ask for such.
	switch {
	case t.cfg.Audience == "" && !r.Status.Authenticated:
		return Verdict{Outcome: OutcomeUnknown, Why: "the token is not valid for the API server"}, nil
	case t.cfg.Audience != "" && (!r.Status.Authenticated || !slices.Contains(r.Status.Audiences, t.cfg.Audience)):
		return Verdict{Outcome: OutcomeUnknown, Why: fmt.Sprintf("the token is not valid for the audience %s", t.cfg.Audience)}, nil
	}
	u := r.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(u.Extra))
	for k, v := range u.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	a, err := t.cfg.API.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: t.cfg.Verb},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return Verdict{}, fmt.Errorf("subject access review: %w", err)
	}
	user := display.Safe(u.Username, 256)
	if !a.Status.Allowed || a.Status.Denied {
		return Verdict{Outcome: OutcomeForbidden, User: user, Why: fmt.Sprintf("user %s may not %s to %s", user, t.cfg.Verb, path)}, nil
	}
	return Verdict{Outcome: OutcomeAllowed, User: user}, nil
}

// Bearer returns the token that a request shows.
func Bearer(r *http.Request) (token string, given bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	token = strings.TrimSpace(token)
	return token, token != "" && len(token) <= MaxToken
}

// Address returns the host that a request comes from.
func Address(r *http.Request) string { return hostOf(r.RemoteAddr) }

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
