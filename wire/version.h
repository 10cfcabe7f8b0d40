// What two sides of the wire agree on: the newest version in both ranges, or an error that names
// both.
//
// Errors: FAILED_PRECONDITION where the ranges do not meet. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/cloud.pb.h"
#include "wire/limits.h"

namespace outboard::wire {

struct Versions {
  uint32_t oldest, newest;  // both included
};

inline constexpr Versions kProtocolOfClients = {kProtocolVersionOldest, kProtocolVersion};
// A gateway and its workers are one operator's: workers pull blobs since 2, and gateways do not do
// it for them.
inline constexpr Versions kProtocolOfWorkers = {2, kProtocolVersion};
inline constexpr Versions kGraphSchemas = {kGraphSchemaVersion, kGraphSchemaVersion};

inline void SetRange(const Versions& versions, proto::VersionRange& range) {
  range.set_min(versions.oldest);
  range.set_max(versions.newest);
}

// `they` and `we` with their verbs, for the message: "the client speaks protocol", "this gateway".
inline absl::StatusOr<uint32_t> AgreeOn(const proto::VersionRange& theirs, const Versions& ours,
                                        const char* they, const char* we) {
  const uint32_t newest = std::min(theirs.max(), ours.newest);
  if (newest >= std::max(theirs.min(), ours.oldest)) return newest;
  return absl::FailedPreconditionError(absl::StrCat(they, " ", theirs.min(), " to ", theirs.max(),
                                                    ", ", we, " ", ours.oldest, " to ",
                                                    ours.newest));
}

}  // namespace outboard::wire
