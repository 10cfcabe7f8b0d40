// Prints a benchmark's figures: one line per figure, for people or, with `report_json`, one JSON
// object per line.
#pragma once

#include <string>
#include <vector>

namespace outboard::bench {

extern bool report_json;

// A value that is infinite or no number is reported as skipped, with that as the reason.
// `peer` names the reference that `value` is compared with, `note` describes the measurement.
void Report(const std::string& figure, double value, const std::string& unit,
            const std::string& peer = "", const std::string& note = "");
// Reports a figure that cannot be measured on this machine, so that it does not look forgotten.
void ReportSkipped(const std::string& figure, const std::string& why);

// The least of `values` that a share of `q` of them does not exceed (nearest rank): 0.5 is a
// median, 0.9 of ten the ninth. `values` is not empty.
double Quantile(std::vector<double> values, double q);

}  // namespace outboard::bench
