#include "base/environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/exec_arguments.h"
#include "worker/sandbox/boxed_environment.h"

namespace outboard::worker {
namespace {

TEST(Environment, ASwitchIsOnUnlessItSaysNothingOrNo) {
  const struct {
    const char* value;
    bool on;
  } cases[] = {{nullptr, false}, {"", false},  {"0", false},
               {"1", true},      {"00", true}, {"no", true}};
  for (const auto& c : cases) {
    unsetenv("OB_SWITCH");
    if (c.value != nullptr) setenv("OB_SWITCH", c.value, 1);
    EXPECT_EQ(IsSet("OB_SWITCH"), c.on) << (c.value == nullptr ? "unset" : c.value);
  }
}

TEST(Environment, CachesAreUnderTheCacheHomeElseUnderHome) {
  const struct {
    const char *cache, *home;
    std::string folder;
  } cases[] = {{"/c", "/h", "/c/outboard"},
               {"", "/h", "/h/.cache/outboard"},
               {nullptr, "/h", "/h/.cache/outboard"},
               {"", "", ""},
               {nullptr, nullptr, ""}};
  for (const auto& c : cases) {
    for (const auto& [name, value] : {std::pair{"XDG_CACHE_HOME", c.cache}, {"HOME", c.home}}) {
      unsetenv(name);
      if (value != nullptr) setenv(name, value, 1);
    }
    EXPECT_EQ(CacheFolder(), c.folder);
  }
}

TEST(ExecArguments, OwnVariablesReplaceThoseOfTheSameName) {
  setenv("OB_TEST_SET", "old", 1);
  setenv("OB_TEST_SETTING", "stays", 1);  // begins like it, and is another
  const std::vector<std::string> all = EnvironmentWith({"OB_TEST_SET=new", "OB_TEST_FRESH=1"});
  const auto count = [&](const char* variable) {
    return std::count(all.begin(), all.end(), variable);
  };
  EXPECT_EQ(count("OB_TEST_SET=new"), 1);
  EXPECT_EQ(count("OB_TEST_SET=old"), 0);
  EXPECT_EQ(count("OB_TEST_SETTING=stays"), 1);
  EXPECT_EQ(count("OB_TEST_FRESH=1"), 1);
  unsetenv("OB_TEST_SET");
  unsetenv("OB_TEST_SETTING");
}

TEST(ExecArguments, PointersEndWithNull) {
  std::vector<std::string> words = {"a", "", "bc"};
  const std::vector<char*> pointers = ExecPointers(words);
  ASSERT_EQ(pointers.size(), 4u);
  EXPECT_STREQ(pointers[0], "a");
  EXPECT_STREQ(pointers[1], "");
  EXPECT_STREQ(pointers[2], "bc");
  EXPECT_EQ(pointers[3], nullptr);
}

// What CUDA's driver would keep under HOME is code that the accounts of a machine would share.
TEST(BoxedEnvironment, OfAnExecutorWithAGpu_HasTheDriversOwnCacheOff) {
  const auto has = [](SandboxProfile profile, const char* variable) {
    const std::vector<std::string> all = BoxedEnvironment(profile);
    return std::ranges::count(all, variable);
  };
  setenv("HOME", "/h", 1);
  setenv("CUDA_CACHE_DISABLE", "0", 1);  // whoever started the worker is not asked
  setenv("OUTBOARD_DEVICE", "cuda", 1);
  EXPECT_EQ(has(SandboxProfile::kExecutor, "HOME=/h"), 1);
  EXPECT_EQ(has(SandboxProfile::kExecutor, "CUDA_CACHE_DISABLE=1"), 1);
  EXPECT_EQ(has(SandboxProfile::kExecutor, "CUDA_CACHE_DISABLE=0"), 0);
  EXPECT_EQ(has(SandboxProfile::kCompiler, "HOME=/h"), 0);
  setenv("OUTBOARD_DEVICE", "cpu", 1);
  EXPECT_EQ(has(SandboxProfile::kExecutor, "HOME=/h"), 0) << "no driver, and no cache of its own";
  for (const char* const name : {"HOME", "CUDA_CACHE_DISABLE", "OUTBOARD_DEVICE"}) unsetenv(name);
}

}  // namespace
}  // namespace outboard::worker
