// Blobs on disk: verified before they are visible, by tenant, and after damage.
#include "gateway/blobs/blob_store.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "proto/limits.h"

namespace outboard::gateway {
namespace {

constexpr TenantId kA{1}, kB{2};

class BlobStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/obblob-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    store_ = BlobStore::Open(folder_).value();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::Status Write(TenantId tenant, const wire::Hash& hash, std::string_view bytes) {
    auto writer = store_->Begin(tenant, hash);
    if (!writer.ok()) return writer.status();
    for (size_t at = 0; at < bytes.size(); at += 100'000) {
      if (absl::Status status = (*writer)->Append(bytes.substr(at, 100'000)); !status.ok())
        return status;
    }
    return (*writer)->Finish();
  }
  size_t Files() {
    size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_))
      files += entry.is_regular_file();
    return files;
  }
  std::filesystem::path Only(const char* part) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file() && entry.path().string().find(part) != std::string::npos)
        return entry.path();
    }
    return {};
  }

  std::string folder_;
  std::unique_ptr<BlobStore> store_;
};

TEST_F(BlobStoreTest, WritesCommitsAndReads) {
  std::string bytes(wire::kBlobChunkBytes + 5, 'q');
  wire::BlobName name = wire::NameBlob(bytes);
  ASSERT_EQ(name.chunks.size(), 2u);
  EXPECT_EQ(store_->Commit(kA, name.root, name.chunks, bytes.size()).code(),
            absl::StatusCode::kNotFound);
  ASSERT_TRUE(Write(kA, name.chunks[0], bytes.substr(0, wire::kBlobChunkBytes)).ok());
  ASSERT_TRUE(Write(kA, name.chunks[1], bytes.substr(wire::kBlobChunkBytes)).ok());
  ASSERT_TRUE(store_->Commit(kA, name.root, name.chunks, bytes.size()).ok());
  auto reopened = BlobStore::Open(folder_).value();
  auto blob = reopened->Find(kA, name.root);
  ASSERT_TRUE(blob.ok());
  EXPECT_EQ(blob->size_bytes, bytes.size());
  EXPECT_EQ(*reopened->ReadChunk(kA, blob->chunks[1]), bytes.substr(wire::kBlobChunkBytes));
}

TEST_F(BlobStoreTest, WrongBytesAreNeverVisible) {
  wire::Hash hash = wire::HashChunk("right");
  EXPECT_EQ(Write(kA, hash, "wrong").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(store_->Has(kA, hash));
  {
    auto half = store_->Begin(kA, hash).value();
  }
  EXPECT_EQ(Files(), 0u);
  EXPECT_EQ(Write(kA, hash, std::string(wire::kBlobChunkBytes + 1, 'x')).code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(BlobStoreTest, ATenantSeesItsOwnOnly) {
  wire::BlobName name = wire::NameBlob("secret");
  ASSERT_TRUE(Write(kA, name.chunks[0], "secret").ok());
  ASSERT_TRUE(store_->Commit(kA, name.root, name.chunks, 6).ok());
  EXPECT_FALSE(store_->Has(kB, name.chunks[0]));
  EXPECT_EQ(store_->Find(kB, name.root).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->Commit(kB, name.root, name.chunks, 6).code(), absl::StatusCode::kNotFound);
}

TEST_F(BlobStoreTest, RootsAreChecked) {
  wire::BlobName name = wire::NameBlob("abc");
  ASSERT_TRUE(Write(kA, name.chunks[0], "abc").ok());
  wire::Hash other = name.root;
  other[0] ^= 1;
  struct {
    const wire::Hash* root;
    uint64_t size;
    std::vector<wire::Hash> chunks;
  } bad[] = {
      {&other, 3, name.chunks},
      {&name.root, 4, name.chunks},  // size is part of the root
      {&name.root, 3, {name.chunks[0], name.chunks[0]}},
      {&name.root, 3, {}},
      {&name.root, uint64_t{1} << 62, name.chunks},
  };
  for (const auto& c : bad) {
    EXPECT_EQ(store_->Commit(kA, *c.root, c.chunks, c.size).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(BlobStoreTest, DamageIsFoundAndCanBeMended) {
  wire::BlobName name = wire::NameBlob("precious");
  ASSERT_TRUE(Write(kA, name.chunks[0], "precious").ok());
  ASSERT_TRUE(store_->Commit(kA, name.root, name.chunks, 8).ok());
  std::ofstream(Only("chunks")) << "PRECIOUS";
  EXPECT_EQ(store_->ReadChunk(kA, name.chunks[0]).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(store_->Has(kA, name.chunks[0]));
  ASSERT_TRUE(Write(kA, name.chunks[0], "precious").ok());
  EXPECT_TRUE(store_->ReadChunk(kA, name.chunks[0]).ok());
  std::ofstream(Only("roots")) << "8 99999999999\nx";
  EXPECT_EQ(store_->Find(kA, name.root).status().code(), absl::StatusCode::kDataLoss);
}

TEST(Merkle, NamesDifferByDomainSizeAndOrder) {
  wire::Hash a = wire::HashChunk("a"), b = wire::HashChunk("b");
  EXPECT_NE(a, wire::Sha256("a"));
  const wire::Hash ab[] = {a, b}, ba[] = {b, a}, one[] = {a};
  EXPECT_NE(wire::MerkleRoot(ab, 2), wire::MerkleRoot(ba, 2));
  EXPECT_NE(wire::MerkleRoot(ab, 2), wire::MerkleRoot(ab, 3));
  EXPECT_NE(wire::MerkleRoot(one, 1), a);
  EXPECT_EQ(wire::NameBlob("").root, wire::MerkleRoot({}, 0));
  // No chunk has the name of a pair.
  std::string pair = std::string(wire::AsBytes(a)) + std::string(wire::AsBytes(b));
  EXPECT_NE(wire::HashChunk(pair), wire::Sha256(std::string(1, '\1') + pair));
}

}  // namespace
}  // namespace outboard::gateway
