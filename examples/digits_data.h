// Reads the handwritten digits: a file of comma-separated integers, plain or compressed with gzip.
// See data/README.md.
#pragma once
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace digits {

inline constexpr std::int64_t pixels = 64, classes = 10;
inline constexpr int darkest = 16;

/// Images as rows of `pixels` numbers from 0 to 1, and the digit that each one shows.
struct Images {
  std::vector<float> rows;
  std::vector<std::int32_t> labels;
  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

/// What is wrong with a file, and where: "digits.csv.gz:17: ..."; line 0 is the file as a whole.
class DataError : public std::runtime_error {
 public:
  DataError(const std::string& file, std::int64_t line, const std::string& what)
      : std::runtime_error(file + (line ? ":" + std::to_string(line) : "") + ": " + what) {}
};

/// Adds the image of one line; throws what is wrong with it as text.
inline void append_line(std::string_view line, Images& to) {
  const char* at = line.data();
  const char* const end = at + line.size();
  for (std::int64_t column = 1; column <= pixels + 1; ++column) {
    const std::string where = "column " + std::to_string(column);
    if (at == end) throw where + " is missing, a line has " + std::to_string(pixels + 1);
    int number = -1;
    const auto [stop, error] = std::from_chars(at, end, number);
    const int largest = column <= pixels ? darkest : static_cast<int>(classes) - 1;
    if (error != std::errc() || number < 0 || number > largest || (stop != end && *stop != ','))
      throw where + " must be a number from 0 to " + std::to_string(largest) + ", it is '" +
          std::string(at, std::find(at, end, ',')) + "'";
    if (column <= pixels)
      to.rows.push_back(static_cast<float>(number) / darkest);
    else
      to.labels.push_back(number);
    at = stop == end ? end : stop + 1;
  }
  if (at != end) throw "more than " + std::to_string(pixels + 1) + " columns";
}

/// Throws DataError for a file that cannot be read, is damaged, or holds something else.
inline Images read(const std::string& file) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> in(gzopen(file.c_str(), "rb"), gzclose);
  if (!in) throw DataError(file, 0, std::string("cannot be opened: ") + std::strerror(errno));
  Images images;
  char buffer[1024];
  std::int64_t line = 0;
  while (true) {
    const bool more = gzgets(in.get(), buffer, sizeof buffer) != nullptr;
    line += more;
    int code = Z_OK;
    const char* const damage = gzerror(in.get(), &code);
    if (code == Z_ERRNO)
      throw DataError(file, line, std::string("cannot be read: ") + std::strerror(errno));
    if (code != Z_OK && code != Z_STREAM_END)
      throw DataError(file, line, std::string("the compressed data is damaged: ") + damage);
    if (!more) break;
    std::string_view text = buffer;
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
    try {
      append_line(text, images);
    } catch (const std::string& what) {
      throw DataError(file, line, what);
    }
  }
  if (images.size() < 1000)
    throw DataError(file, line,
                    "the file ends after " + std::to_string(images.size()) +
                        " images, at least 1000 are needed");
  return images;
}

/// The images in an order given by `seed`, cut after each fraction: the parts for training, for
/// early stopping, for the test.
inline std::vector<Images> split(const Images& all, unsigned seed,
                                 std::initializer_list<double> cuts) {
  std::vector<std::size_t> order(all.labels.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, std::mt19937(seed));
  std::vector<Images> parts(cuts.size() + 1);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double place = static_cast<double>(i) / static_cast<double>(order.size());
    Images& part = parts[static_cast<std::size_t>(
        std::ranges::count_if(cuts, [&](double cut) { return place >= cut; }))];
    const auto row = all.rows.begin() + static_cast<std::ptrdiff_t>(order[i]) * pixels;
    part.rows.insert(part.rows.end(), row, row + pixels);
    part.labels.push_back(all.labels[order[i]]);
  }
  return parts;
}

}  // namespace digits
