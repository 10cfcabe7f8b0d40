// The linker of the small driver (fake_cuda_driver.cc). Links wait for each other, so that a test
// sees how many run at once: it counts "links met". A text with the word "nonsense" is not linked,
// and none is while "no links" is set.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

extern "C" void outboard_fake_set(const char* name, int64_t value);
extern "C" int64_t outboard_fake_get(const char* name);

namespace outboard::cuda {

// As long as the real one's work: the next comes when `meet links` of them are here at once, each
// on a thread of its own, or after ten seconds.
void MeetOtherLinks() {
  static std::mutex mutex;
  static std::condition_variable changed;
  static int64_t here = 0, met = 0;
  const int64_t wanted = outboard_fake_get("meet links");
  if (wanted == 0) return;
  std::unique_lock<std::mutex> lock(mutex);
  const int64_t mine = met;
  if (++here == wanted) {
    here = 0;
    ++met;
    outboard_fake_set("links met", met);
    changed.notify_all();
  } else if (!changed.wait_for(lock, std::chrono::seconds(10), [&] { return met != mine; })) {
    --here;
  }
}

// The linker's error message for a text; nullptr if it links it.
const char* WhyNotLinked(const std::string& text) {
  if (text.find("nonsense") != std::string::npos) return "line 1: nonsense";
  return outboard_fake_get("no links") != 0 ? "no linker for sm_90a" : nullptr;
}

}  // namespace outboard::cuda
