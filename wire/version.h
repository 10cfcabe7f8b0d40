// Version negotiation: returns the newest version in both sides' ranges, or an error that names
// both.
//
// Errors: FAILED_PRECONDITION if the ranges do not overlap. Pure.
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
// A gateway and its workers have one operator. Workers pull blobs since version 2, and gateways no
// longer do it for them.
inline constexpr Versions kProtocolOfWorkers = {2, kProtocolVersion};
inline constexpr Versions kGraphSchemas = {kGraphSchemaVersion, kGraphSchemaVersion};

inline void SetRange(const Versions& versions, proto::VersionRange& range) {
  range.set_min(versions.oldest);
  range.set_max(versions.newest);
}

// `they` and `we` begin the parts of the message: "the client speaks protocol", "this gateway".
inline absl::StatusOr<uint32_t> AgreeOn(const proto::VersionRange& theirs, const Versions& ours,
                                        const char* they, const char* we) {
  const uint32_t newest = std::min(theirs.max(), ours.newest);
  if (newest >= std::max(theirs.min(), ours.oldest)) return newest;
  return absl::FailedPreconditionError(absl::StrCat(they, " ", theirs.min(), " to ", theirs.max(),
                                                    ", ", we, " ", ours.oldest, " to ",
                                                    ours.newest));
}

}  // namespace outboard::wire
