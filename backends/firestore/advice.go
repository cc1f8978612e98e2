package firestore

import (
	"fmt"
	"time"
)

const docs = "see docs/backends/firestore.md"

// skewed is how far this host's clock may be off before that is told as the likely cause of a token that is refused.
// Google allows some minutes; a Date header is whole seconds, and an answer takes its time.
const skewed = 30 * time.Second

// advise is what to do about what the server said, and whether asking again is useless.
func (c *client) advise(e *apiError) (remedy string, permanent bool) {
	switch e.reason() {
	case "SERVICE_DISABLED":
		return "run gcloud services enable firestore.googleapis.com --project " + c.project, true
	case "BILLING_DISABLED":
		return "enable billing of project " + c.project, true
	case "CONSUMER_INVALID", "CONSUMER_SUSPENDED":
		return "check the project in the URL and the quota project", true
	case "USER_PROJECT_DENIED":
		return "give the account roles/serviceusage.serviceUsageConsumer in the quota project, or leave quota_project out", true
	case "ACCESS_TOKEN_SCOPE_INSUFFICIENT":
		return "give the machine or node pool the scope https://www.googleapis.com/auth/datastore or cloud-platform", true
	}
	switch e.Status {
	case "UNAUTHENTICATED":
		if e.skew.Abs() > skewed {
			return fmt.Sprintf("set this host's clock, which is %v off the server's", e.skew.Abs().Round(time.Second)), true
		}
		return "check that the key or account still exists (lockrun doctor tells which it is), and this host's clock", true
	case "PERMISSION_DENIED":
		return "give the account roles/datastore.user in project " + c.project + " (lockrun doctor tells which account it is)", true
	case "NOT_FOUND":
		return "check project and database in the URL; gcloud firestore databases create makes a database", true
	case "FAILED_PRECONDITION":
		return "the database has to be in native mode, " + docs, true
	case "INVALID_ARGUMENT", "OUT_OF_RANGE", "UNIMPLEMENTED":
		return "check project, collection and database in the URL", true
	case "RESOURCE_EXHAUSTED":
		return "look at the quotas and the billing of project " + c.project + "; fewer heartbeats cost less, " + docs, false
	case "ABORTED":
		return "too many change this key at one time: use a longer --heartbeat, or fewer --slots", false
	case "UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED":
		return "look at status.cloud.google.com if it goes on", false
	}
	return docs, false
}
