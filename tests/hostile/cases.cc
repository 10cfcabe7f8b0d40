#include "tests/hostile/hostile_case.h"

namespace outboard::test {
namespace {

using enum absl::StatusCode;

constexpr char kNoNodeTokens[] =
    "nodes are not enrolled by single-use tokens yet: that belongs to booting nodes";

}  // namespace

const std::vector<HostileCase>& AllHostileCases() {
  static const auto* const cases = new std::vector<HostileCase>{
      // ---- blobs
      {106, "blob_hash_mismatch", "uploads bytes under another hash", {kInvalidArgument}, "hash",
       BlobHashMismatch},
      {107, "blob_short", "names more bytes than it sends", {kInvalidArgument}, "bytes", BlobShort},
      {107, "blob_long", "sends more bytes than it names", {kInvalidArgument}, "bytes|root",
       BlobLong},
      {108, "blob_zstd_ratio_bomb", "uploads 256 MiB of zeros as 256 KiB", {kUnimplemented}, "",
       BlobRatioBomb},
      {109, "blob_resume_wrong_offset", "continues a chunk elsewhere", {kInvalidArgument},
       "consecutive", BlobResumeWrongOffset},
      {110, "blob_probe_other_tenants_hash", "asks for what another account stores", {kNotFound},
       "", BlobProbe},
      {110, "blob_probe_other_tenants_hash_same_timing", "measures how long the answer takes", {kOk}, "",
       BlobProbeTimes},
      // FAILED_PRECONDITION would say more than NOT_FOUND says of another account's blob (110).
      {111, "blob_reference_never_uploaded", "uses a blob that was never sent", {kNotFound}, "",
       BlobNeverUploaded},
      {112, "blob_name_path_traversal", "stores under names that are paths", {kInvalidArgument},
       "a name has", BlobNameIsNoPath},
      {113, "blob_upload_race_same_hash", "uploads one chunk eight times at once, twice wrongly",
       {kOk}, "", BlobUploadRace},
      // ---- keys
      {114, "key_missing", "shows no key", {kUnauthenticated}, "asks for a key", KeyMissing},
      {114, "key_garbled", "shows a key that is none", {kUnauthenticated}, "key", KeyGarbled},
      {114, "key_revoked", "shows a revoked key", {kUnauthenticated}, "revoked", KeyRevoked},
      {114, "key_expired", "shows an expired key", {kUnauthenticated}, "expired", KeyExpired},
      {114, "key_wrong_scope", "calls what its key is not for", {kPermissionDenied}, "store",
       KeyWrongScope},
      {114, "key_wrong_address", "uses a key from elsewhere", {kUnauthenticated}, "address",
       KeyWrongAddress},
      {115, "key_brute_force_10k", "guesses 10,000 keys", {kUnauthenticated, kResourceExhausted}, "",
       KeyBruteForce},
      // ---- sessions and money
      // A number that comes twice is a resend after a broken connection: the first counts.
      {116, "step_id_reuse_other_body", "sends another item under a number that was used", {kOk}, "",
       StepIdReused},
      {117, "step_id_of_other_tenant", "shows another account's session and token", {kNotFound},
       "no such session", StepIdOfOther},
      {118, "hold_amount_overflow", "asks for the largest numbers there are", {kUnimplemented},
       "devices", HoldOverflow},
      {118, "negative_balance_race", "spends its balance in many sessions at once", {}, "", nullptr,
       "no balance refuses anything yet: what is used is posted, whatever the balance"},
      // Of each lease less than a second is not charged (decision 020).
      {119, "cancel_spam_free_compute", "cancels what it has used", {kOk}, "", CancelSpam},
      {120, "deadline_zero", "asks for an answer at once", {kDeadlineExceeded}, "", DeadlineZero},
      {120, "deadline_negative", "asks for an answer before now",
       {kInvalidArgument, kDeadlineExceeded, kInternal, kOk}, "", DeadlineNegative},
      {120, "deadline_1e12", "waits for 30,000 years", {kOk}, "", DeadlineHuge},
      {129, "log_injection_newlines_in_names", "puts line breaks into names", {kInvalidArgument},
       "printable", LogInjection},
      // ---- workers that lie
      {131, "node_token_replay", "shows a node's token again", {}, "", nullptr, kNoNodeTokens},
      {132, "node_two_claim_one_serial", "is the second node of a serial number", {}, "", nullptr,
       kNoNodeTokens},
      {133, "node_cert_expired", "joins with an expired certificate", {}, "", nullptr,
       "workers of this cluster join on loopback, by the fleet secret; certificates have tests of "
       "their own"},
      {134, "node_stale_epoch_result", "sends results of another epoch, and after the end",
       {kAborted}, "", NodeStaleEpoch},
      {135, "node_result_for_other_tenant", "speaks for another account's session", {kAborted}, "",
       NodeOfOtherAccount},
      {136, "node_usage_over_hold", "says that more was used than there was time", {kOk}, "",
       NodeUsageOverHold},
      {137, "node_usage_overlap", "says that it has a session that another one has", {kOk}, "",
       NodeUsageOverlap},
      // ---- HTTP/2
      {121, "h2_rapid_reset_20k", "opens 20,000 streams and resets each", {kUnavailable, kOk}, "",
       RapidReset},
      {122, "h2_header_64KiB", "sends 64 KiB of headers",
       {kResourceExhausted, kUnavailable, kUnimplemented}, "",
       Header64KiB},
      {123, "h2_continuation_flood", "sends headers without an end", {kUnavailable}, "",
       ContinuationFlood},
      {126, "stream_open_1000", "opens 1,000 streams", {kResourceExhausted, kDeadlineExceeded}, "",
       StreamsOpenMany},
      {127, "ping_flood", "sends 20,000 pings", {kUnavailable}, "GOAWAY 11", PingFlood},
      {128, "metadata_binary_header_garbage", "sends bytes that are no metadata",
       {kUnauthenticated, kUnavailable, kInternal}, "", MetadataGarbage},
      // Last of these, since they take 30 s, which begin before the first case.
      {125, "slowloris_500_half_requests", "begins 500 requests and ends none", {kUnavailable}, "",
       Slowloris, "", SlowlorisBegins},
      {124, "h2_window_zero_slow_reader", "takes nothing of what it asked for",
       {kUnavailable, kCancelled}, "", WindowZero, "", WindowZeroBegins},
      // The very last: it reads what all others were answered.
      {130, "error_text_leaks", "reads what it was answered", {kOk}, "", ErrorTextLeaks},
  };
  return *cases;
}

}  // namespace outboard::test
