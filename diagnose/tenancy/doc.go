// Package tenancy restricts Diagnoses outside the system namespace. Such a Diagnosis belongs to a
// user of its namespace, a tenant, who must get no information beyond the pods there.
//
//   - It is about one pod of its own namespace ([Check]).
//   - Each operation of its graph only collects, is marked tenantSafe by an administrator's
//     Operation, and is a built-in made for tenants ([Check]).
//   - Parameters that name the target have the pod's own values. A Diagnosis with other values
//     is refused ([Parameters]). Values from an Operation's fixed parameters or earlier results
//     are overwritten after they are merged ([Builtins]).
//
// For a tenant no web server is called, even if its Operation is marked tenantSafe: the request
// would come from the node's network, with the agent's address and client certificate, and with
// contents that the tenant chooses. No script runs either: it would run as a user of the node and
// get the tenant's text as arguments.
//
// [Resolve] does all of this at once. The package is pure: it reads no files and sends no requests.
package tenancy
