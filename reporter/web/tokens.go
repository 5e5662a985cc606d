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

// Outcomes of checking a token.
const (
	OutcomeAllowed     = "allowed"
	OutcomeUnknown     = "unknown"     // 401
	OutcomeForbidden   = "forbidden"   // 403
	OutcomeLimited     = "limited"     // 429: too many unknown tokens
	OutcomeUnavailable = "unavailable" // 503: the API server could not be reached
)

const (
	// refusedFor is how long a refusal is cached. A right that is granted meanwhile takes effect
	// after that.
	refusedFor  = 10 * time.Second
	maxVerdicts = 1024
	// reviewWithin is the timeout of both reviews together.
	reviewWithin = 5 * time.Second
	// RetrySoon is when to retry if the API server could not be reached.
	RetrySoon = 5 * time.Second
	// MaxToken bounds the length of a token.
	MaxToken = 16 << 10
)

// TokensConfig configures how tokens are reviewed by the API server.
type TokensConfig struct {
	API kubernetes.Interface
	// Audience is the audience of the tokens; empty means the API server itself.
	Audience string
	// Verb is the verb that the user needs on the path. For non-resource paths, RBAC uses HTTP's
	// methods.
	Verb string
	// Allowed is how long a positive verdict is cached: a revoked right or an expired token
	// still works for that long.
	Allowed time.Duration
	// Kept is how long a positive verdict is used while the API server is unreachable; 0 means
	// no longer than Allowed.
	Kept time.Duration
	// Rate is how many unknown tokens per second are sent to the API server at most, and a tenth
	// of that per address. Each costs it two requests.
	Rate int
	Log  *slog.Logger
}

// Verdict is the user of a token and the outcome of the review.
type Verdict struct {
	Outcome string
	User    string
	Why     string // for the client; empty if allowed
}

// Tokens has bearer tokens reviewed by the API server and caches the verdicts.
type Tokens struct {
	cfg       TokensConfig
	secret    []byte // keys the cache, so that it cannot be searched for a token
	verdicts  *cache.LRUExpireCache
	kept      *cache.LRUExpireCache // the allowed ones
	flights   singleflight.Group
	all       *rate.Limiter
	addresses *Limiters
	report    rate.Sometimes
}

// NewTokens returns Tokens with an empty cache.
func NewTokens(c TokensConfig) *Tokens {
	each, burst := c.AddressRate()
	return &Tokens{
		cfg: c, secret: []byte(rand.Text()), verdicts: cache.NewLRUExpireCache(maxVerdicts), kept: cache.NewLRUExpireCache(maxVerdicts),
		all: rate.NewLimiter(rate.Limit(c.Rate), 2*c.Rate), addresses: NewLimiters(maxAddresses, each, burst),
		report: rate.Sometimes{First: 1, Interval: 10 * time.Second},
	}
}

// AddressRate returns how many unknown tokens of one address are sent to the API server per
// second, and the burst.
func (c *TokensConfig) AddressRate() (each rate.Limit, burst int) {
	return rate.Limit(float64(c.Rate) / 10), max(c.Rate*4/10, 5)
}

// Verdict returns whether a token allows access to a path. after is when to retry, or 0.
func (t *Tokens) Verdict(ctx context.Context, token, path, address string) (v Verdict, after time.Duration) {
	h := hmac.New(sha256.New, t.secret)
	h.Write([]byte(path + " " + token))
	key := string(h.Sum(nil))
	known, _ := t.verdicts.Get(key)
	if v, ok := known.(Verdict); ok {
		return v, 0
	}
	// A token that was allowed is reviewed again without a rate limit, as its rights may have
	// been revoked: there are few such tokens, each was valid once, and the answer is cached.
	if _, wasAllowed := t.kept.Get(key); !wasAllowed {
		for _, l := range []*rate.Limiter{t.addresses.Of(address), t.all} {
			if !l.Allow() {
				return Verdict{Outcome: OutcomeLimited}, RetrySoon
			}
		}
	}
	got, err, _ := t.flights.Do(key, func() (any, error) {
		// Another flight may have ended since the lookup above.
		if known, ok := t.verdicts.Get(key); ok {
			return known, nil
		}
		// Other callers may wait for the same answer.
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
		t.report.Do(func() { t.cfg.Log.Error("can't check tokens with the API server", "error", err) })
		return t.unasked(key)
	}
	return v, 0
}

// unasked returns the verdict while the API server is unreachable: an earlier positive one,
// which is then cached for a while, or unavailable.
func (t *Tokens) unasked(key string) (Verdict, time.Duration) {
	known, _ := t.kept.Get(key)
	if v, ok := known.(Verdict); ok {
		t.verdicts.Add(key, v, refusedFor)
		return v, 0
	}
	return Verdict{Outcome: OutcomeUnavailable}, RetrySoon
}

// review asks the API server for the token's user and for that user's access to the path.
func (t *Tokens) review(ctx context.Context, token, path string) (Verdict, error) {
	spec := authenticationv1.TokenReviewSpec{Token: token}
	if t.cfg.Audience != "" {
		spec.Audiences = []string{t.cfg.Audience}
	}
	r, err := t.cfg.API.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return Verdict{}, fmt.Errorf("token review: %w", err)
	}
	// An authenticator without support for audiences returns none: the token is then meant for
	// the API server, and is accepted only if no other audience is required.
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
		return Verdict{Outcome: OutcomeForbidden, User: user, Why: fmt.Sprintf("user %s may not %s %s", user, t.cfg.Verb, path)}, nil
	}
	return Verdict{Outcome: OutcomeAllowed, User: user}, nil
}

// Bearer returns the bearer token of a request.
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
