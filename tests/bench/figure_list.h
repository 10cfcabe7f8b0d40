// The figures of a part of the benchmark by name. What is not reported by its end is listed as
// skipped, with the reason, so that no figure vanishes where it cannot be taken. Where the process
// is killed there is no such end: scripts/gpu-checks then lists those of GpuFigureNames that nobody
// has reported.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace outboard::bench {

class FigureList {
 public:
  explicit FigureList(std::vector<std::string> names) : names_(std::move(names)) {}
  // Lists what was not reported.
  virtual ~FigureList();
  FigureList(const FigureList&) = delete;
  FigureList& operator=(const FigureList&) = delete;

  // As report.h has it. A name beside the list is reported, too.
  void Report(const std::string& figure, double value, const std::string& unit,
              const std::string& peer, const std::string& note);
  // Why those that will not be reported are skipped; the last reason counts.
  void Lacks(const std::string& why) { why_ = why; }
  // The reason of one figure, instead of that of all.
  void Skip(const std::string& figure, const std::string& why);

 private:
  const std::vector<std::string> names_;
  std::set<std::string> reported_;
  std::string why_ = "this program has no measurement of it";
};

}  // namespace outboard::bench
