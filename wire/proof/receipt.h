// Receipts: what a worker has counted of a leased device, signed by its node's key (Receipt in
// fleet.proto).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/fleet.pb.h"
#include "wire/proof/signing_key.h"

namespace outboard::signing {

inline constexpr size_t kPhysicalDeviceBytesMax = 100;
// Of one Heartbeat: more leases than one worker can have or remember.
inline constexpr int kReceiptsMax = 4096;

// The name of a worker's device, the same in every lease: the worker's key, and the device's number
// there.
std::string PhysicalDevice(std::string_view receipt_key, uint32_t device);

// Fills in key and signature.
void Sign(const SigningKey& key, proto::Receipt& receipt);

// Errors: DATA_LOSS  the signature is not that of its key, or a field has no possible value, such
//                    as a device of another worker's
absl::Status CheckReceipt(const proto::Receipt& receipt);

}  // namespace outboard::signing
