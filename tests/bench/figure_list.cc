#include "tests/bench/figure_list.h"

#include "tests/bench/report.h"

namespace outboard::bench {

FigureList::~FigureList() {
  for (const std::string& name : names_)
    if (!reported_.contains(name)) ReportSkipped(name, why_);
}

void FigureList::Report(const std::string& figure, double value, const std::string& unit,
                        const std::string& peer, const std::string& note) {
  bench::Report(figure, value, unit, peer, note);
  reported_.insert(figure);
}

void FigureList::Skip(const std::string& figure, const std::string& why) {
  ReportSkipped(figure, why);
  reported_.insert(figure);
}

}  // namespace outboard::bench
