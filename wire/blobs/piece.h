// Encodes and decodes BlobPiece (cloud.proto) as gRPC's own buffers: the bytes of a blob go from
// memory to the socket, and from the socket to the disk, without a copy through a message.
//
// The format is the protobuf encoding of the message, so either side may be an ordinary stub.
// Threads: any; no state.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "wire/merkle.h"

namespace outboard::wire {

struct BlobPieceView {
  Hash chunk{};
  uint32_t chunk_bytes = 0;
  uint32_t offset = 0;
  std::vector<grpc::Slice> data;  // consecutive
  size_t data_bytes = 0;
};

// Refers to `data` without a copy; `data` must live as long as any slice of it.
grpc::ByteBuffer EncodeBlobPiece(const Hash& chunk, uint32_t chunk_bytes, uint32_t offset,
                                 grpc::Slice data);

// Errors: INVALID_ARGUMENT  not a BlobPiece, or a hash that is not 32 bytes long
absl::StatusOr<BlobPieceView> DecodeBlobPiece(const grpc::ByteBuffer& buffer);

// Returns bytes [begin, begin + size) of memory that `owner` keeps alive as long as gRPC needs
// them.
grpc::Slice SliceOf(std::shared_ptr<const void> owner, const char* begin, size_t size);

}  // namespace outboard::wire
