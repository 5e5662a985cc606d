package alerts

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/collector/event"
)

const (
	// For so long a verdict holds: a right that is taken away, and a token that has
	// ended, count for allowedFor more; whoever gets a right waits for refusedFor.
	allowedFor, refusedFor = time.Minute, 10 * time.Second
	maxVerdicts            = 1024
	// reviewWithin is how long the API server may take for the two questions together.
	reviewWithin = 5 * time.Second
)

// verb is what a sender must be allowed on the path: of paths that are no resource, RBAC
// has the methods of HTTP.
const verb = "post"

// verdict is whose a token is, and what became of it.
type verdict struct {
	outcome string
	user    string
	why     string // for the sender; not of one that is allowed
}

// tokens asks the API server about tokens, and remembers its answers.
type tokens struct {
	api       kubernetes.Interface
	audience  string
	log       *slog.Logger
	secret    []byte // so that what is remembered can't be looked up by a token
	verdicts  *cache.LRUExpireCache
	flights   singleflight.Group
	all       *rate.Limiter
	addresses *limiters
	tell      rate.Sometimes
}

func newTokens(c *Config) (*tokens, error) {
	t := &tokens{
		api: c.API, audience: c.Audience, log: c.Log, secret: make([]byte, sha256.Size), verdicts: cache.NewLRUExpireCache(maxVerdicts),
		all: rate.NewLimiter(reviewRate, reviewBurst), tell: rate.Sometimes{First: 1, Interval: 10 * time.Second},
	}
	if _, err := rand.Read(t.secret); err != nil {
		return nil, err
	}
	var err error
	t.addresses, err = newLimiters(maxAddresses, addressReviewRate, addressReviewBurst)
	return t, err
}

// verdict says what a token is good for. after is when to try again, where that may help.
func (t *tokens) verdict(ctx context.Context, token, path, address string) (v verdict, after time.Duration) {
	h := hmac.New(sha256.New, t.secret)
	h.Write([]byte(path + " " + token))
	key := string(h.Sum(nil))
	if known, ok := t.verdicts.Get(key); ok {
		if v, ok := known.(verdict); ok {
			return v, 0
		}
	}
	for _, l := range []*rate.Limiter{t.addresses.of(address), t.all} {
		if !l.Allow() {
			return verdict{outcome: outcomeLimited}, retrySoon
		}
	}
	got, err, _ := t.flights.Do(key, func() (any, error) {
		// Others may wait for the same answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewWithin)
		defer cancel()
		v, err := t.review(ctx, token, path)
		if err != nil {
			return verdict{}, err
		}
		lasts := refusedFor
		if v.outcome == outcomeAllowed {
			lasts = allowedFor
		}
		t.verdicts.Add(key, v, lasts)
		return v, nil
	})
	v, _ = got.(verdict)
	if err != nil {
		t.tell.Do(func() { t.log.Error("alerts: tokens can't be reviewed", "error", err) })
		return verdict{outcome: outcomeUnavailable}, retrySoon
	}
	return v, 0
}

// review asks whose the token is, and whether that user may post to the path.
func (t *tokens) review(ctx context.Context, token, path string) (verdict, error) {
	r, err := t.api.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{t.audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return verdict{}, fmt.Errorf("token review: %w", err)
	}
	// An authenticator that knows no audiences names none: then the token is for the API
	// server, and not for us to take.
	if !r.Status.Authenticated || !slices.Contains(r.Status.Audiences, t.audience) {
		return verdict{outcome: outcomeUnknown, why: fmt.Sprintf("the token is not valid for the audience %s", t.audience)}, nil
	}
	u := r.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(u.Extra))
	for k, v := range u.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	a, err := t.api.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return verdict{}, fmt.Errorf("subject access review: %w", err)
	}
	user := event.SafeText(u.Username, 256)
	if !a.Status.Allowed || a.Status.Denied {
		return verdict{outcome: outcomeForbidden, user: user, why: fmt.Sprintf("user %s may not %s to %s", user, verb, path)}, nil
	}
	return verdict{outcome: outcomeAllowed, user: user}, nil
}
