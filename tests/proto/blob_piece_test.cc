// Pieces of blobs as buffers: what is written is protobuf's encoding, and whatever protobuf reads
// is read the same.
#include <gtest/gtest.h>

#include <random>

#include "proto/cloud.pb.h"
#include "wire/blobs/piece.h"

namespace outboard::wire {
namespace {

constexpr int kMutations = 20000;
constexpr uint32_t kSeed = 5;

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

std::string DataOf(const BlobPieceView& piece) {
  std::string bytes;
  for (const grpc::Slice& slice : piece.data)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

// Cut into slices of `size`, as a socket might give them.
grpc::ByteBuffer Cut(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += size)
    slices.emplace_back(bytes.data() + at, std::min(size, bytes.size() - at));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

TEST(BlobPiece, IsWrittenAsProtobufWritesIt) {
  for (const uint32_t offset : {0u, 1u, 300u, 4'000'000u}) {
    for (const size_t size : {size_t{1}, size_t{127}, size_t{128}, size_t{70'000}}) {
      const std::string data(size, 'd');
      proto::BlobPiece message;
      const Hash chunk = HashChunk("c");
      message.set_chunk(std::string(AsBytes(chunk)));
      message.set_chunk_bytes(4'194'304);
      message.set_offset(offset);
      message.set_data(data);
      EXPECT_EQ(BytesOf(EncodeBlobPiece(chunk, 4'194'304, offset, grpc::Slice(data))),
                message.SerializeAsString())
          << offset << " " << size;
    }
  }
}

// Either refuses what the other refuses, and both read the same.
void ExpectAsProtobuf(const std::string& bytes, size_t cut) {
  proto::BlobPiece message;
  const bool good = message.ParseFromString(bytes) && message.chunk().size() == sizeof(Hash);
  const auto piece = DecodeBlobPiece(Cut(bytes, cut));
  ASSERT_EQ(piece.ok(), good) << "seed " << kSeed;
  if (!good) return;
  EXPECT_EQ(AsBytes(piece->chunk), message.chunk());
  EXPECT_EQ(piece->chunk_bytes, message.chunk_bytes());
  EXPECT_EQ(piece->offset, message.offset());
  EXPECT_EQ(piece->data_bytes, message.data().size());
  EXPECT_EQ(DataOf(*piece), message.data());
}

TEST(BlobPiece, IsReadAsProtobufReadsIt) {
  proto::BlobPiece message;
  message.set_chunk(std::string(AsBytes(HashChunk("c"))));
  message.set_chunk_bytes(100'000);
  message.set_offset(5);
  message.set_data(std::string(50, 'd'));
  const std::string good = message.SerializeAsString();
  for (size_t cut : {size_t{1}, size_t{7}, size_t{35}, good.size()}) ExpectAsProtobuf(good, cut);
  for (size_t size = 0; size < good.size(); ++size) ExpectAsProtobuf(good.substr(0, size), 9);
  ExpectAsProtobuf(good + good, 13);  // fields given twice: the last counts
  std::mt19937 random(kSeed);
  for (int i = 0; i < kMutations; ++i) {
    std::string bytes = good;
    for (uint32_t changes = 1 + random() % 3; changes > 0; --changes)
      bytes[random() % 60] = static_cast<char>(random());
    ExpectAsProtobuf(bytes, 1 + random() % 64);
  }
}

TEST(BlobPiece, ASliceKeepsItsMemory) {
  auto owner = std::make_shared<std::string>("held");
  const std::weak_ptr<std::string> watch = owner;
  grpc::Slice slice = SliceOf(owner, owner->data(), owner->size());
  owner.reset();
  EXPECT_FALSE(watch.expired());
  {
    const grpc::ByteBuffer piece = EncodeBlobPiece(Hash{}, 4, 0, std::move(slice));
    EXPECT_FALSE(watch.expired());
  }
  slice = grpc::Slice();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace outboard::wire
