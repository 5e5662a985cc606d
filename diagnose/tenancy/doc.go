// Package tenancy says what a Diagnosis outside the system namespace may do: it belongs to
// a user of its namespace, a tenant, who must not learn of anything but the pods there.
//
//   - It is about one pod of its own namespace ([Check]).
//   - Each operation of its graph only collects, is marked tenantSafe by an administrator's
//     Operation, and is a built-in that is made for that ([Check]).
//   - What names the thing looked at is the pod's own. A Diagnosis that says otherwise is
//     refused ([Parameters]), and whatever comes of an Operation's fixed parameters or of
//     earlier results is replaced behind the place where they are merged ([Builtins]).
//
// A web server is never run for a tenant, whatever its Operation says: the request would
// leave from the node's network, with the agent's address and client certificate, and the
// tenant chooses what it says. Nor is a script: it runs as a user of the node and gets the
// tenant's text as arguments.
//
// [Resolve] does all of it at once. The package is pure: it reads no files and asks no
// server.
package tenancy
