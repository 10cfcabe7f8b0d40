// What an upload does next: everything missing is sent once, nothing that is there is, in whatever
// order jobs end and wherever the connections break.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "wire/blobs/upload_plan.h"
#include "wire/limits.h"

namespace outboard::wire {
namespace {

using Do = BlobUploadPlan::Do;
constexpr int kSeeds = 300;
constexpr size_t kHeldMax = 3;

Hash HashOf(uint32_t content) {
  Hash hash{};
  std::memcpy(hash.data(), &content, sizeof content);
  return hash;
}

// Several uploads of blobs whose chunks have few contents, to a cloud that has some, by several
// workers.
class Upload {
 public:
  explicit Upload(uint32_t seed) : random_(seed) {
    for (uint32_t b = 0, count = 1 + random_() % 3; b < count; ++b) {
      const uint32_t chunks = random_() % 12;
      BlobName name;
      for (uint32_t i = 0; i < chunks; ++i) {
        contents_.push_back(random_() % 20);
        name.chunks.push_back(HashOf(contents_.back()));
      }
      names_.push_back(name);
      sizes_.push_back(chunks * kBlobChunkBytes - (chunks > 0 ? random_() % 1000 : 0));
    }
    for (uint32_t content = 0; content < 20; ++content)
      if (random_() % 3 == 0) cloud_.insert(HashOf(content));
    had_ = cloud_;
    for (size_t b = 0; b < names_.size(); ++b)
      blobs_.push_back({sizes_[b], random_() % 3 == 0 ? &names_[b] : nullptr});
  }

  void Run() {
    BlobUploadPlan plan(blobs_, kHeldMax);
    ASSERT_EQ(plan.chunk_count(), contents_.size());
    std::vector<BlobUploadPlan::Job> jobs;  // under way
    int breaks = 3;
    for (int steps = 0;; ++steps) {
      ASSERT_LT(steps, 10'000) << "does not come to an end";
      if (breaks > 0 && random_() % 30 == 0) {
        --breaks;
        jobs.clear();
        unconfirmed_.clear();  // what was sent is lost
        plan.Again();
      }
      BlobUploadPlan::Job job = plan.Next();
      const Do what = job.what;
      if (what != Do::kWait && what != Do::kNothing) jobs.push_back(std::move(job));
      if (what == Do::kNothing && jobs.empty()) break;
      if (what == Do::kWait) ASSERT_FALSE(jobs.empty()) << "waits for nothing";
      if (jobs.empty() || (what != Do::kWait && what != Do::kNothing && random_() % 2)) continue;
      const size_t i = random_() % jobs.size();
      Finish(plan, jobs[i]);
      jobs.erase(jobs.begin() + static_cast<ptrdiff_t>(i));
    }
    for (const Hash& hash : unconfirmed_) cloud_.insert(hash);
    for (uint32_t content : contents_) EXPECT_TRUE(cloud_.contains(HashOf(content)));
    for (size_t b = 0; b < names_.size(); ++b) EXPECT_EQ(plan.HashesOf(b), names_[b].chunks);
  }

 private:
  void Finish(BlobUploadPlan& plan, const BlobUploadPlan::Job& job) {
    if (job.what == Do::kHash) {
      plan.Hashed(job.chunk, HashOf(contents_[job.chunk]));
    } else if (job.what == Do::kAsk) {
      std::vector<Hash> missing;
      for (size_t i : job.ask)
        if (!cloud_.contains(plan.chunk(i).hash)) missing.push_back(plan.chunk(i).hash);
      plan.Answered(job.ask, missing);
    } else {
      const Hash hash = plan.chunk(job.chunk).hash;
      EXPECT_FALSE(had_.contains(hash)) << "sent what was there";
      EXPECT_TRUE(unconfirmed_.insert(hash).second) << "sent twice";
      plan.Sent(job.chunk);
    }
  }

  std::mt19937 random_;
  std::vector<uint32_t> contents_;  // of chunks, through all blobs
  std::vector<BlobName> names_;
  std::vector<uint64_t> sizes_;
  std::vector<BlobUploadPlan::Blob> blobs_;
  std::set<Hash> cloud_, had_, unconfirmed_;
};

TEST(BlobUploadPlan, SendsWhatIsMissingOnce) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Upload(seed).Run();
    if (HasFailure()) return;
  }
}

TEST(BlobUploadPlan, HoldsNoMoreThanItMay) {
  const BlobUploadPlan::Blob blob{10 * kBlobChunkBytes, nullptr};
  BlobUploadPlan plan({&blob, 1}, kHeldMax);
  for (size_t i = 0; i < kHeldMax; ++i) EXPECT_EQ(plan.Next().what, Do::kHash);
  EXPECT_EQ(plan.Next().what, Do::kWait);
  for (uint32_t i = 0; i < kHeldMax; ++i) plan.Hashed(i, HashOf(i));
  const BlobUploadPlan::Job ask = plan.Next();
  ASSERT_EQ(ask.what, Do::kAsk);
  EXPECT_EQ(plan.Next().what, Do::kWait);
  plan.Answered(ask.ask, {});  // all there
  EXPECT_EQ(plan.Next().what, Do::kHash);
  EXPECT_EQ(plan.saved_bytes(), kHeldMax * kBlobChunkBytes);
}

}  // namespace
}  // namespace outboard::wire
