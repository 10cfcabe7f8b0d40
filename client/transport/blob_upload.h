// Brings a blob into the cloud: asks which of its chunks are missing, sends those, names the whole.
//
// Blocks the calling thread; any thread. A call that broke off may be made again: what arrived is
// not sent twice.
#ifndef OUTBOARD_CLIENT_TRANSPORT_BLOB_UPLOAD_H_
#define OUTBOARD_CLIENT_TRANSPORT_BLOB_UPLOAD_H_

#include <grpcpp/channel.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/merkle.h"

namespace outboard::transport {

// `bytes` are those that `name` was made of. Adds what it sends to `bytes_up`.
// Errors: UNAVAILABLE where the connection broke; the gateway's.
absl::Status UploadBlob(const std::shared_ptr<grpc::Channel>& channel, const std::string& key,
                        const wire::BlobName& name, std::string_view bytes,
                        std::atomic<uint64_t>& bytes_up);

}  // namespace outboard::transport

#endif  // OUTBOARD_CLIENT_TRANSPORT_BLOB_UPLOAD_H_
