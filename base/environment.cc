#include "base/environment.h"

#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace outboard {
namespace {

std::string_view ValueOf(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool IsSet(const char* name) { return !ValueOf(name).empty() && ValueOf(name) != "0"; }

std::string CacheFolder() {
  if (const std::string cache(ValueOf("XDG_CACHE_HOME")); !cache.empty())
    return absl::StrCat(cache, "/outboard");
  const std::string home(ValueOf("HOME"));
  return home.empty() ? "" : absl::StrCat(home, "/.cache/outboard");
}

}  // namespace outboard
