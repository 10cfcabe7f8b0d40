// Receipts: what a worker has counted of a leased device, signed by its node's key (Receipt in
// fleet.proto).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/fleet.pb.h"
#include "wire/proof/signing_key.h"

namespace outboard::proof {

inline constexpr size_t kPhysicalDeviceBytesMax = 100;
// Of one Heartbeat: more leases than one worker can have or remember.
inline constexpr int kReceiptsMax = 4096;

// Fills in key and signature.
void Sign(const SigningKey& key, proto::Receipt& receipt);

// Errors: DATA_LOSS  the signature is not that of its key, or a field has no possible value
absl::Status CheckReceipt(const proto::Receipt& receipt);

}  // namespace outboard::proof
