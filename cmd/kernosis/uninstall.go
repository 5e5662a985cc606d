package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/deploy/install"
)

// Limits of requests per second, and of bursts: 1,000 nodes with two writes each take 20 s, and
// leave the API server room for other clients.
const uninstallQPS, uninstallBurst = 100, 200

func newUninstall() *cobra.Command {
	var kube *kubeFlagSet
	c := install.Config{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop agents and controller, and remove what they left in the cluster",
		Long: `Delete the agents' DaemonSet and the controller's Deployment, wait until their pods are
gone, then remove what they wrote to other objects: node conditions, cordons and taints.
Leases and saved trigger state are deleted too; the CustomResourceDefinitions and all
Diagnoses only with --crds. The command may be repeated. Roles, service accounts and
configuration stay: remove them as you installed them (helm uninstall, kubectl delete -k).`,
		Example: `  kernosis uninstall -n kernosis --crds
  kernosis uninstall -n kernosis`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			c.Namespace = cmp.Or(kube.over.Context.Namespace, os.Getenv("POD_NAMESPACE"), install.DefaultNamespace)
			if why := validation.IsDNS1123Label(c.Namespace); len(why) > 0 {
				return fmt.Errorf("namespace: %q: %s", c.Namespace, why[0])
			}
			return nil
		},
	}
	uninstall := func(ctx context.Context, to *rest.Config, say func(string)) error {
		c.To, c.Say = to, say
		return install.Uninstall(ctx, c)
	}
	kube = writesCluster(cmd, 2*time.Minute, "time limit of the whole command", uninstall)
	cmd.Flags().StringVar(&c.DaemonSet, "daemonset", install.DefaultDaemonSet, "`name` of the agents' DaemonSet")
	cmd.Flags().StringVar(&c.Deployment, "deployment", install.DefaultDeployment, "`name` of the controller's Deployment")
	cmd.Flags().BoolVar(&c.Kinds, "crds", false, "also delete the CustomResourceDefinitions and with them all Diagnoses, OperationSets, Triggers, Operations and policies")
	return cmd
}

func newCRDs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "crds",
		Short: "Install or delete the CustomResourceDefinitions",
	}
	cmd.AddCommand(newCRDsApply(), newCRDsDelete())
	return cmd
}

func newCRDsApply() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "apply",
		Short:   "Apply the CustomResourceDefinitions of this version and wait until they are established",
		Example: "  kernosis crds apply --context prod",
		Args:    cobra.NoArgs,
	}
	writesCluster(cmd, time.Minute, "time limit of the command", install.ApplyKinds)
	return cmd
}

func newCRDsDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete --yes",
		Short:   "Delete the CustomResourceDefinitions and all their objects",
		Example: "  kernosis crds delete --yes --context prod",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if !yes {
				return errors.New("this deletes all Diagnoses, OperationSets, Triggers, Operations and policies of the cluster: confirm with --yes")
			}
			return nil
		},
	}
	writesCluster(cmd, time.Minute, "time limit of the command", install.DeleteKinds)
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm that all objects of these kinds are deleted")
	return cmd
}

// writesCluster makes a command do work with a timeout and the rate limits for many writes, and adds
// the flags for that. The work reports its progress to say.
func writesCluster(cmd *cobra.Command, timeout time.Duration, usage string, work func(ctx context.Context, to *rest.Config, say func(string)) error) *kubeFlagSet {
	kube := newKubeFlagSet(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, usage)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if timeout <= 0 {
			return fmt.Errorf("timeout: %s, want more than 0", timeout)
		}
		to, err := kube.rest()
		if err != nil {
			return err
		}
		to.QPS, to.Burst, to.UserAgent = uninstallQPS, uninstallBurst, "kernosis-uninstall/"+version
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		return output.Failed(work(ctx, to, func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) }))
	}
	return kube
}
