// Measures what it costs to be watched: a small step with and without counting and scrapes, and a
// scrape of a gateway with a thousand sessions.
#pragma once

namespace outboard::bench {

void MetricsFigures();

}  // namespace outboard::bench
