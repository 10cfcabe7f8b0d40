// How a benchmark says what it measured: one line a figure, for people or, with `report_json`, one
// JSON object a line.
#pragma once

#include <string>
#include <vector>

namespace outboard::bench {

extern bool report_json;

// `peer` says what `value` is compared with, `note` what was measured.
void Report(const std::string& figure, double value, const std::string& unit,
            const std::string& peer = "", const std::string& note = "");
// A figure that this machine cannot give, by name, so that nobody takes it for forgotten.
void ReportSkipped(const std::string& figure, const std::string& why);

// q in [0, 1]: 0.5 is the median. `values` is not empty.
double Quantile(std::vector<double> values, double q);

}  // namespace outboard::bench
