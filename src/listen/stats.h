// What report() reads of the listeners that live.
#pragma once
#include <postern/listen.h>

#include <vector>

namespace postern::host {

std::vector<listen::Series> living_series();
std::vector<listen::Histogram::Counts> living_histograms();

}  // namespace postern::host
