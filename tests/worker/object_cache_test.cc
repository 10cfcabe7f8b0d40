#include "worker/compile/object_cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace outboard::worker {
namespace {

namespace fs = std::filesystem;

// "Compiles" a kernel into an object that repeats it; "bad" fails.
class FakeCompiler final : public KernelCompiler {
 public:
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override {
    std::vector<absl::StatusOr<CompiledKernel>> results;
    requests.push_back(kernels.size());
    for (const KernelSource& source : kernels) {
      const std::string kernel = source.encoding + source.opts.value_or("");
      asked.push_back(kernel);
      if (kernel == "bad") {
        results.push_back(absl::InvalidArgumentError("bad"));
      } else {
        results.push_back(CompiledKernel{"object of " + kernel, "symbol", 7, 3, 11, 13});
      }
    }
    return results;
  }
  std::vector<std::string> asked;
  std::vector<size_t> requests;  // kernels of each
};

class ObjectCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "object-cache-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = fs::path(name) / "made" / "by the cache";
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  // What a new process gets for `kernels`; `asked_` is what it had to compile.
  std::vector<absl::StatusOr<CompiledKernel>> Compile(const std::vector<std::string>& kernels,
                                                      const std::string& compiler = "v1",
                                                      int64_t bytes_max = 1 << 20) {
    std::vector<KernelSource> sources;
    for (const std::string& kernel : kernels) sources.push_back({kernel, std::nullopt});
    return Compile(sources, compiler, bytes_max);
  }
  std::vector<absl::StatusOr<CompiledKernel>> Compile(const std::vector<KernelSource>& sources,
                                                      const std::string& compiler = "v1",
                                                      int64_t bytes_max = 1 << 20) {
    FakeCompiler inner;
    ObjectCache cache(&inner,
                      {.folder = folder_.string(), .compiler = compiler, .bytes_max = bytes_max});
    auto results = cache.Compile(sources);
    asked_ = inner.asked;
    return results;
  }
  std::vector<fs::path> Files() const {
    return {fs::directory_iterator(folder_), fs::directory_iterator()};
  }

  fs::path root_, folder_;
  std::vector<std::string> asked_;
};

TEST_F(ObjectCacheTest, CompiledOnceAndWholeWhenReadBack) {
  Compile(std::vector<std::string>{"a", "b"});
  EXPECT_EQ(asked_, (std::vector<std::string>{"a", "b"}));
  const auto results = Compile(std::vector<std::string>{"b", "c", "a"});
  EXPECT_EQ(asked_, std::vector<std::string>{"c"});
  for (const auto& [i, object] :
       {std::pair{0, "object of b"}, {1, "object of c"}, {2, "object of a"}}) {
    ASSERT_TRUE(results[i].ok());
    EXPECT_EQ(results[i]->object, object);
    EXPECT_EQ(results[i]->symbol, "symbol");
    EXPECT_EQ(results[i]->tasks, 7);
    EXPECT_EQ(results[i]->buffer_count, 3);
    EXPECT_EQ(results[i]->flops, 11);
    EXPECT_EQ(results[i]->bytes, 13);
  }
}

TEST_F(ObjectCacheTest, AnotherCompilerFindsNothing) {
  Compile(std::vector<std::string>{"a"}, "v1");
  Compile(std::vector<std::string>{"a"}, "v2");
  EXPECT_EQ(asked_, std::vector<std::string>{"a"});
  Compile(std::vector<std::string>{"1a"}, "v");  // the border between the two is part of the key
  EXPECT_EQ(asked_, std::vector<std::string>{"1a"});
}

TEST_F(ObjectCacheTest, OtherOptsAreAnotherObject) {
  const KernelSource by_heuristic{"a", std::nullopt}, plain{"a", ""}, wide{"a", "VECTOR:0:4"};
  Compile(std::vector<KernelSource>{by_heuristic, plain});
  const auto results = Compile(std::vector<KernelSource>{wide, plain, by_heuristic});
  EXPECT_EQ(asked_, std::vector<std::string>{"aVECTOR:0:4"});
  EXPECT_EQ(results[0]->object, "object of aVECTOR:0:4");
}

TEST_F(ObjectCacheTest, FailuresAreNotKept) {
  EXPECT_EQ(Compile(std::vector<std::string>{"bad"})[0].status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Files().empty());
}

TEST_F(ObjectCacheTest, AnyDamageIsNoticed) {
  Compile(std::vector<std::string>{"a"});
  const fs::path path = Files().at(0);
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (size_t at = 0; at <= whole.size(); ++at) {
    std::string damaged = whole;
    if (at < whole.size()) {
      damaged[at] ^= 0x10;
    } else {
      damaged += 'x';
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    EXPECT_EQ(Compile(std::vector<std::string>{"a"})[0]->object, "object of a");
    ASSERT_EQ(asked_, std::vector<std::string>{"a"}) << "byte " << at;
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        << whole.substr(0, at == whole.size() ? 0 : at);
    Compile(std::vector<std::string>{"a"});
    ASSERT_EQ(asked_, std::vector<std::string>{"a"}) << "cut at " << at;
  }
  // A good file under another kernel's name.
  Compile(std::vector<std::string>{"b"});
  std::string name_of_b;
  for (const fs::path& file : Files())
    if (file != path) name_of_b = file.string();
  fs::copy_file(path, name_of_b, fs::copy_options::overwrite_existing);
  EXPECT_EQ(Compile(std::vector<std::string>{"b"})[0]->object, "object of b");
}

TEST_F(ObjectCacheTest, TheLeastRecentlyUsedGoesFirst) {
  const std::string big(1000, 'k');
  for (char c = 'a'; c < 'k'; ++c) {
    Compile(std::vector<std::string>{big + c});
    for (const fs::path& file : Files())
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::minutes(1));
  }
  Compile(std::vector<std::string>{big + 'a'});  // used now
  EXPECT_TRUE(asked_.empty());
  Compile(std::vector<std::string>{big + 'z'}, "v1", 6000);
  EXPECT_LE(Files().size(), 6u);
  Compile(std::vector<std::string>{big + 'a'});
  EXPECT_TRUE(asked_.empty());
  Compile(std::vector<std::string>{big + 'b'});
  EXPECT_FALSE(asked_.empty());
}

// As on a full disk: files cannot grow.
TEST_F(ObjectCacheTest, WhatCannotBeWrittenIsCompiledAndLeavesNothing) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{}, none{};
  getrlimit(RLIMIT_FSIZE, &before);
  none = {16, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  const auto results = Compile(std::vector<std::string>{"a", "b"});
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(results[0]->object, "object of a");
  EXPECT_EQ(results[1]->object, "object of b");
  EXPECT_TRUE(Files().empty());
  Compile(std::vector<std::string>{"a", "b"});
  EXPECT_EQ(asked_.size(), 2u);
  EXPECT_EQ(Files().size(), 2u);
}

TEST_F(ObjectCacheTest, WithoutAFolderItStillCompiles) {
  std::ofstream(root_ / "file") << "not a folder";
  folder_ = root_ / "file" / "below";
  EXPECT_EQ(Compile(std::vector<std::string>{"a"})[0]->object, "object of a");
}

// As those of the executors of a session on several devices.
TEST_F(ObjectCacheTest, CachesOfOneFolder_CompileAKernelOnce) {
  class Slow final : public KernelCompiler {
   public:
    std::vector<absl::StatusOr<CompiledKernel>> Compile(
        std::span<const KernelSource> kernels) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return inner.Compile(kernels);
    }
    FakeCompiler inner;
  };
  std::vector<KernelSource> sources;
  for (int i = 0; i < 50; ++i) sources.push_back({std::to_string(i), std::nullopt});
  sources.push_back({"bad", std::nullopt});
  sources.push_back({"0", std::nullopt});  // again
  constexpr int kRanks = 4;
  Slow compilers[kRanks];
  std::vector<std::thread> ranks;
  for (Slow& compiler : compilers)
    ranks.emplace_back([&] {
      ObjectCache cache(&compiler, {.folder = folder_.string(), .compiler = "v1"});
      const auto results = cache.Compile(sources);
      ASSERT_EQ(results.size(), sources.size());
      for (size_t i = 0; i < sources.size(); ++i) {
        const bool is_bad = sources[i].encoding == "bad";
        ASSERT_EQ(results[i].ok(), !is_bad) << i;
        EXPECT_EQ(is_bad ? std::string(results[i].status().message()) : results[i]->object,
                  is_bad ? "bad" : "object of " + sources[i].encoding);
      }
    });
  for (std::thread& rank : ranks) rank.join();
  std::multiset<std::string> asked;
  for (const Slow& compiler : compilers)
    asked.insert(compiler.inner.asked.begin(), compiler.inner.asked.end());
  asked.erase("bad");  // by each that came when nobody was at it
  EXPECT_EQ(asked.size(), 50u);
  EXPECT_EQ(std::set<std::string>(asked.begin(), asked.end()).size(), 50u);
}

// A request is compiled on all cores: alone, a cache has nobody to leave kernels to.
TEST_F(ObjectCacheTest, ACacheThatIsAlone_AsksForAllInOneRequest) {
  std::vector<KernelSource> sources;
  for (int i = 0; i < 50; ++i) sources.push_back({std::to_string(i), std::nullopt});
  class OfThreads final : public KernelCompiler {
   public:
    explicit OfThreads(int threads) { target_.threads = threads; }
    std::vector<absl::StatusOr<CompiledKernel>> Compile(
        std::span<const KernelSource> kernels) override {
      return inner.Compile(kernels);
    }
    const Target& target() const override { return target_; }
    FakeCompiler inner;

   private:
    Target target_;
  };
  const auto requests_of = [&](int threads, const std::string& compiler) {
    OfThreads inner(threads);
    ObjectCache cache(&inner, {.folder = folder_.string(), .compiler = compiler});
    cache.Compile(sources);
    return inner.inner.requests;
  };
  EXPECT_EQ(requests_of(2, "alone"), std::vector<size_t>({50}));
  FakeCompiler idle;
  const ObjectCache other(&idle, {.folder = folder_.string(), .compiler = "other"});
  EXPECT_EQ(requests_of(2, "two cores"), std::vector<size_t>({8, 8, 8, 8, 8, 8, 2}));
  EXPECT_EQ(requests_of(4, "four cores"), std::vector<size_t>({16, 16, 16, 2}));
}

TEST_F(ObjectCacheTest, WhoIsStopped_WaitsForNobody) {
  class Stuck final : public KernelCompiler {
   public:
    std::vector<absl::StatusOr<CompiledKernel>> Compile(
        std::span<const KernelSource> kernels) override {
      begun = true;
      while (!may_end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return std::vector<absl::StatusOr<CompiledKernel>>(kernels.size(),
                                                         absl::UnavailableError("no process"));
    }
    std::atomic<bool> begun = false, may_end = false;
  };
  Stuck stuck;
  const std::vector<KernelSource> sources = {{"kernel", std::nullopt}};
  std::thread first([&] {
    ObjectCache(&stuck, {.folder = folder_.string(), .compiler = "v1"}).Compile(sources);
  });
  while (!stuck.begun) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  FakeCompiler inner;
  ObjectCache second(
      &inner,
      {.folder = folder_.string(), .compiler = "v1", .is_stopped = [] { return true; }});
  EXPECT_EQ(second.Compile(sources)[0].status().code(), absl::StatusCode::kCancelled);
  stuck.may_end = true;
  first.join();
  // The first had no compiler, which is no fault of the kernel.
  EXPECT_TRUE(second.Compile(sources)[0].ok());
}

}  // namespace
}  // namespace outboard::worker
