#include "telemetry/process_figures.h"

#include <dirent.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace outboard::telemetry {
namespace {

// Fields of /proc/self/stat behind the name, which may have spaces; the first is field 3.
std::istringstream StatFields() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  return std::istringstream(end == std::string::npos ? "" : line.substr(end + 1));
}

double SecondsOf(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// When this process started, in Unix seconds: `seconds` after the machine. By the clocks, since a
// unit with ProcSubset=pid has no /proc/stat; once, so that a change of the clock is no restart.
double StartTime(double seconds) {
  static const double start = SecondsOf(CLOCK_REALTIME) - SecondsOf(CLOCK_BOOTTIME) + seconds;
  return start;
}

int OpenDescriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count - 3;  // ".", ".." and the folder's own
}

}  // namespace

void SampleProcess(Samples& samples) {
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::istringstream fields = StatFields();
  std::string skipped;
  double user = 0, system = 0, threads = 0, start = 0, virtual_bytes = 0, resident_pages = 0;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  fields >> user >> system;
  for (int field = 16; field < 20; ++field) fields >> skipped;
  fields >> threads >> skipped >> start >> virtual_bytes >> resident_pages;
  if (fields) {
    samples.Set(Metric::kProcessCpu, (user + system) / ticks);
    samples.Set(Metric::kProcessThreads, threads);
    samples.Set(Metric::kProcessVirtual, virtual_bytes);
    samples.Set(Metric::kProcessResident,
                resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
    samples.Set(Metric::kProcessStart, StartTime(start / ticks));
  }
  if (const int open = OpenDescriptors(); open >= 0) samples.Set(Metric::kProcessOpenFds, open);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
    samples.Set(Metric::kProcessMaxFds, static_cast<double>(limit.rlim_cur));
}

}  // namespace outboard::telemetry
