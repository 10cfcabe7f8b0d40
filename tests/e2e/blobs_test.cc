// Large values through real processes: uploaded once, pulled by the worker once, mapped by
// executors, each of which may write over its own; and not to be had by who does not have them.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "client/session/session.h"
#include "tests/support/cluster.h"
#include "tests/support/random_bytes.h"
#include "wire/merkle.h"

namespace outboard {
namespace {

using absl::StatusCode;

constexpr int64_t kSize = 9'000'001;

class BlobsTest : public ::testing::Test {
 protected:
  void StartUp() { cluster_.StartUp(1, "", {"OUTBOARD_BLOB_CACHE=" + cache()}); }
  std::string cache() const { return cluster_.folder() / "cache"; }
  size_t CachedFiles() const {
    size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache()))
      files += entry.is_regular_file();
    return files;
  }
  static absl::StatusOr<std::string> ValueOf(Session& session, uint64_t handle) {
    auto seq = session.Fetch(handle);
    if (!seq.ok()) return seq.status();
    auto value = session.Await(*seq, 0);
    if (!value.ok()) return value.status();
    return value->bytes;
  }

  test::Cluster cluster_;
  const int64_t dims_[1] = {kSize};
};

TEST_F(BlobsTest, ALargePutIsPulledOnceAndMapped) {
  StartUp();
  const std::string bytes = test::RandomBytes(kSize, 1);
  for (int session = 0; session < 2; ++session) {
    auto client = cluster_.Connect();
    ASSERT_NE(client, nullptr);
    const uint64_t before = client->stats().bytes_up;
    for (int copy = 0; copy < 2; ++copy) {
      const uint64_t handle = client->NewHandle();
      ASSERT_TRUE(client->Put(handle, DType::kU8, dims_, bytes).ok());
      auto value = ValueOf(*client, handle);
      ASSERT_TRUE(value.ok()) << value.status();
      EXPECT_TRUE(*value == bytes);
      client->Release(handle);
    }
    const uint64_t sent = client->stats().bytes_up - before;
    if (session == 0)
      EXPECT_GT(sent, bytes.size());
    else
      EXPECT_LT(sent, 10'000u);
    EXPECT_EQ(CachedFiles(), 1u);
  }
}

TEST_F(BlobsTest, WhatTheWorkerLostIsPulledAgain) {
  StartUp();
  const std::string bytes = test::RandomBytes(kSize, 2);
  auto client = cluster_.Connect();
  ASSERT_NE(client, nullptr);
  for (int i = 0; i < 2; ++i) {
    const uint64_t handle = client->NewHandle();
    ASSERT_TRUE(client->Put(handle, DType::kU8, dims_, bytes).ok());
    auto value = ValueOf(*client, handle);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(*value == bytes);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache()))
      if (entry.is_regular_file()) std::filesystem::remove(entry.path());
  }
}

TEST_F(BlobsTest, ABlobThatNobodyUploadedIsNotPut) {
  StartUp();
  auto client = cluster_.Connect();
  ASSERT_NE(client, nullptr);
  const wire::Hash root = wire::NameBlob(test::RandomBytes(kSize, 3)).root;
  const uint64_t handle = client->NewHandle();
  ASSERT_TRUE(client->PutBlob(handle, DType::kU8, dims_, kSize, wire::AsBytes(root)).ok());
  EXPECT_EQ(ValueOf(*client, handle).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(CachedFiles(), 0u);
}

}  // namespace
}  // namespace outboard
