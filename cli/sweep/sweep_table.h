// What people and programs read of a sweep: the table on a terminal, CSV and JSON lines.
#pragma once

#include <string>
#include <vector>

#include "cli/sweep/sweep_plan.h"
#include "cli/sweep/trial.h"

namespace outboard::cli {

// "8 of 20 trials ended, 4 running; $0.0312; best: loss 0.31 at trial 5 (lr=0.001 bs=64)"
std::string SweepSummary(const SweepPlan& plan, const std::vector<SweepTrial>& trials);

// A head line and at most `rows` lines of trials, none wider than `columns`: running ones first,
// then the best of those that ended, then the others. A last line counts those that are left out.
std::vector<std::string> SweepTable(const SweepPlan& plan, const std::vector<SweepTrial>& trials,
                                    size_t rows, size_t columns);

// A line for each trial in order: number, parameters, state, step, metric, best. Costs and times,
// which differ between two runs of the same sweep, are in the JSON lines alone.
std::string ResultsAsCsv(const SweepPlan& plan, const std::vector<SweepTrial>& trials);
std::string ResultsAsJsonLines(const SweepPlan& plan, const std::vector<SweepTrial>& trials);

}  // namespace outboard::cli
