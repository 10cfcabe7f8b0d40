// Faults on demand, and the reports that tests read. The functions with a prefix of their own are
// for tests only.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/gpu/driver/device.h"

namespace outboard::fake_cuda {
namespace {

// Of the program under test, which runs it once before each session's first (runtime/cuda/scrub.h).
constexpr char kWipe[] = "outboard_scrub";

// NAME=VALUE lines in `<this library>.env`: for programs that pass no variables of a test's on.
__attribute__((constructor)) void ReadVariables() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&ReadVariables), &self) == 0) return;
  std::ifstream lines(std::string(self.dli_fname) + ".env");
  for (std::string line; std::getline(lines, line);)
    if (const size_t equals = line.find('='); equals != std::string::npos)
      setenv(line.substr(0, equals).c_str(), line.substr(equals + 1).c_str(), 0);
}

}  // namespace

int FakeDevice::OpenReports(const char* path) {
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) {  // who reads it would take silence for good news
    std::fprintf(stderr, "the tests' driver cannot open its file %s\n", path);
    std::abort();
  }
  return file;
}

// "alloc:3,ecc:1"
void FakeDevice::ParseFaults(const char* text) {
  std::string list(text);
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string item = list.substr(begin, end - begin);
    const size_t colon = item.find(':');
    SetFault(item.substr(0, colon),
             colon == std::string::npos ? 1 : std::atoi(item.c_str() + colon + 1));
    begin = end + 1;
  }
}

void FakeDevice::MapFaultsLeft(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void* const byte =
      file < 0 ? MAP_FAILED : mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (byte == MAP_FAILED) {  // a test that waits for a fault would see none
    std::fprintf(stderr, "the tests' driver cannot open its file %s\n", path);
    std::abort();
  }
  close(file);
  static_assert(std::atomic<uint8_t>::is_always_lock_free);
  faults_left_ = static_cast<std::atomic<uint8_t>*>(byte);
}

bool FakeDevice::SetFault(const std::string& name, int nth) {
  for (const char* known : {"alloc", "host", "ptx", "clusters", "start", "ecc", "sticky", "gone",
                            "endless", "trap", "timeout"}) {
    if (name != known) continue;
    std::lock_guard<std::mutex> lock(fault_mutex_);
    faults_[name] = nth;
    return true;
  }
  return false;
}

bool FakeDevice::Due(const std::string& name) {
  std::lock_guard<std::mutex> lock(fault_mutex_);
  const auto it = faults_.find(name);
  if (it == faults_.end() || it->second == 0) return false;
  if (it->second < 0) return ++it->second, true;
  return --it->second == 0;
}

bool FakeDevice::AllocationDue(size_t bytes) {
  const char* only = std::getenv("OUTBOARD_FAKE_CUDA_FAULT_BYTES");
  return (only == nullptr || bytes == std::strtoull(only, nullptr, 10)) && Due("alloc");
}

bool FakeDevice::DueAt(const std::string& name, const ptx::Function& kernel) {
  const char* only = std::getenv("OUTBOARD_FAKE_CUDA_FAULT_PARAMETERS");
  const size_t count = kernel.parameters.size();
  if (count == 0) return false;
  if (only != nullptr && count != std::strtoull(only, nullptr, 10)) return false;
  if (faults_left_ != nullptr && (kernel.name == kWipe || *faults_left_ == 0))
    return false;
  if (!Due(name)) return false;
  if (faults_left_ != nullptr) --*faults_left_;  // of the one process that has a session
  Note("fault " + name + " parameters " + std::to_string(count));
  return true;
}

// "90", or "75,90": a number for each device, the last one also for those that follow.
int FakeDevice::arch_of(int ordinal) const {
  const char* at = std::getenv("OUTBOARD_FAKE_CUDA_ARCH");
  if (at == nullptr) return 90;
  for (const char* next = nullptr; ordinal > 0 && (next = std::strchr(at, ',')); --ordinal)
    at = next + 1;
  return std::atoi(at);
}

int FakeDevice::MultiprocessorsOf(int arch) {
  const char* count = std::getenv("OUTBOARD_FAKE_CUDA_MULTIPROCESSORS");
  return count != nullptr ? std::max(1, std::atoi(count)) : arch >= 90 ? 132 : 108;
}

void FakeDevice::Use(int ordinal) {
  arch_ = arch_of(ordinal);
  const char* faulty = std::getenv("OUTBOARD_FAKE_CUDA_FAULT_DEVICE");
  if (faulty == nullptr || std::atoi(faulty) == ordinal) return;
  std::lock_guard<std::mutex> lock(fault_mutex_);
  faults_.clear();
}

void FakeDevice::Report(const std::string& text) {
  std::lock_guard<std::mutex> lock(fault_mutex_);
  reports_.push_back(text);
  if (report_file_ < 0) return;
  const std::string line = text + "\n";
  if (write(report_file_, line.data(), line.size()) < 0) report_file_ = -1;
}

void FakeDevice::Note(const std::string& text) const {
  if (note_file_ < 0) return;
  const std::string line = std::to_string(getpid()) + " " + text + "\n";
  if (write(note_file_, line.data(), line.size()) < 0) abort();  // what is missing says nothing
}

std::vector<std::string> FakeDevice::TakeReports(bool clear) {
  std::lock_guard<std::mutex> lock(fault_mutex_);
  std::vector<std::string> reports = reports_;
  if (clear) reports_.clear();
  return reports;
}

}  // namespace outboard::fake_cuda

using outboard::fake_cuda::FakeDevice;

extern "C" {

// The reports so far, one a line, cut to `bytes`; returns their number.
int outboard_fake_cuda_reports(char* buffer, size_t bytes) {
  const std::vector<std::string> reports = FakeDevice::Get().TakeReports(false);
  std::string text;
  for (const std::string& report : reports) text += report + "\n";
  if (buffer != nullptr && bytes > 0) {
    const size_t length = std::min(bytes - 1, text.size());
    std::memcpy(buffer, text.data(), length);
    buffer[length] = 0;
  }
  return static_cast<int>(reports.size());
}
void outboard_fake_cuda_clear_reports() { FakeDevice::Get().TakeReports(true); }

// So many us of the device's clock take calls that queue work from now on.
void outboard_fake_cuda_call_us(int us) { FakeDevice::Get().SetCallUs(us); }

// The fault `name` happens at the nth occasion from now, with -n at each of the next n; 0 takes it
// back. Returns 0 for an unknown name.
int outboard_fake_cuda_fault(const char* name, int nth) {
  return FakeDevice::Get().SetFault(name, nth) ? 1 : 0;
}

// Counters of the machine by name (ptx::Counters); all ones for an unknown name.
unsigned long long outboard_fake_cuda_counter(const char* name) {
  FakeDevice& device = FakeDevice::Get();
  std::lock_guard<std::mutex> lock(device.memory_mutex());
  const outboard::ptx::Counters& counters = device.machine().counters();
  const std::pair<const char*, uint64_t> values[] = {
      {"launches", counters.launches},
      {"warp_instructions", counters.warp_instructions},
      {"lane_instructions", counters.lane_instructions},
      {"global_accesses", counters.global_accesses},
      {"global_sectors", counters.global_sectors},
      {"global_bytes", counters.global_bytes},
      {"shared_accesses", counters.shared_accesses},
      {"shared_wavefronts", counters.shared_wavefronts},
      {"products", counters.products},
      {"filled_bytes", device.filled_bytes()},
      {"links", device.links()}};
  for (const auto& [known, value] : values)
    if (std::strcmp(known, name) == 0) return value;
  return ~0ull;
}
void outboard_fake_cuda_clear_counters() {
  FakeDevice& device = FakeDevice::Get();
  std::lock_guard<std::mutex> lock(device.memory_mutex());
  device.machine().ClearCounters();
}

}  // extern "C"
