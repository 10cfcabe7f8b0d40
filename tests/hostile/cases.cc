#include "tests/hostile/hostile_case.h"

namespace outboard::test {
namespace {

using enum absl::StatusCode;

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
      // ---- time
      {120, "deadline_zero", "asks for an answer at once", {kDeadlineExceeded}, "", DeadlineZero},
      {120, "deadline_negative", "asks for an answer before now",
       {kInvalidArgument, kDeadlineExceeded, kInternal, kOk}, "", DeadlineNegative},
      {120, "deadline_1e12", "waits for 30,000 years", {kOk}, "", DeadlineHuge},
      // ---- HTTP/2
      {121, "h2_rapid_reset_20k", "opens 20,000 streams and resets each", {kUnavailable, kOk}, "",
       RapidReset},
      {122, "h2_header_64KiB", "sends 64 KiB of headers", {kResourceExhausted, kUnavailable}, "",
       Header64KiB},
      {123, "h2_continuation_flood", "sends headers without an end", {kUnavailable}, "",
       ContinuationFlood},
      {125, "slowloris_500_half_requests", "begins 500 requests and ends none", {kUnavailable}, "",
       Slowloris},
      {126, "stream_open_1000", "opens 1,000 streams", {kResourceExhausted, kDeadlineExceeded}, "",
       StreamsOpenMany},
      {127, "ping_flood", "sends 20,000 pings", {kUnavailable}, "GOAWAY 11", PingFlood},
      {128, "metadata_binary_header_garbage", "sends bytes that are no metadata",
       {kUnauthenticated, kUnavailable, kInternal}, "", MetadataGarbage},
      // Last of these, since it takes the 30 s that a reader has.
      {124, "h2_window_zero_slow_reader", "takes nothing of what it asked for",
       {kUnavailable, kCancelled}, "", WindowZero, "", WindowZeroBegins},
  };
  return *cases;
}

}  // namespace outboard::test
