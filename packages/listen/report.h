// Drawings for report(): SVG inside the page, so that it needs nothing else.
#pragma once
#include <postern/listen.h>

#include <string>
#include <string_view>

namespace postern::internal::host {

std::string html_text(std::string_view text);
/// Returns a text of several lines likewise.
std::string html_lines(std::string_view text);

/// Draws the mean of each invocation as a line, the range from min to max as a band behind it.
std::string curve_svg(const listen::Series& series);
std::string histogram_svg(const listen::Histogram::Counts& counts);
/// Draws a bar of `part` (0 to 1) of the full width.
std::string bar_svg(double part);

}  // namespace postern::internal::host
