package v1alpha1_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

func TestTheServerRefusesWhatIsWrongAndNamesTheField(t *testing.T) {
	c, namespace := newClient(t)
	for _, test := range apitest.Cases(t) {
		t.Run(test.Name, func(t *testing.T) {
			obj := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(test.Text), obj); err != nil {
				t.Fatal(err)
			}
			if test.Kind == v1alpha1.KindDiagnosis {
				obj.SetNamespace(namespace)
			}
			err := c.Create(t.Context(), obj, client.FieldValidation(metav1.FieldValidationStrict))
			if test.Accepted() {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			if !refused(err, test.Field, test.Message) {
				t.Errorf("want %s: %s\nhave %v", test.Field, test.Message, err)
			}
		})
	}
}

// refused reports whether an error is the server's refusal of a field.
func refused(err error, field, message string) bool {
	if strings.Contains(err.Error(), `unknown field "`+field+`"`) {
		return true
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Details == nil {
		return false
	}
	// CEL writes keys of maps in brackets, the schema after a dot.
	keys := regexp.MustCompile(`\[([^0-9\]][^\]]*)\]`)
	return slices.ContainsFunc(status.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool {
		return keys.ReplaceAllString(c.Field, ".$1") == field && strings.Contains(c.Message, message)
	})
}
