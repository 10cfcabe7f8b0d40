#include "base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

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

}  // namespace
}  // namespace outboard::worker
