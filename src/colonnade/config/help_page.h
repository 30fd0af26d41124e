// Layout of every help text: the usage, what the verb does, examples, and tables of flags.
//
//   usage: colonnade data audit [FLAGS] run
//
//   Reports the samples that a run has used.
//
//   examples:
//     colonnade data audit runs/books --samples 4000..4007
//
//   flags:
//     --samples TEXT  show the documents of these samples
//     --show N        number of samples to show [3; 0 to 100000]
//
// Texts of all rows begin in one column, at most kTextColumn; a row whose flag is too long for it continues
// on the next line. Lines are wrapped at kWidth characters.
#pragma once

#include <string>
#include <vector>

namespace colonnade::config {

struct HelpRow {
  std::string flag;                     ///< "--samples"; also a positional argument or a verb
  std::string value;                    ///< placeholder of its value: "N", "TEXT ..."; "" for a switch
  std::string text;                     ///< meaning
  std::vector<std::string> notes = {};  ///< default and limits, printed in brackets after the text
};

struct HelpSection {
  std::string title;  ///< "": no line for the title
  std::vector<HelpRow> rows;
};

/// Empty members are not printed.
struct HelpPage {
  std::string usage;                       ///< command line after "usage: "
  std::string about;                       ///< what the verb does; a line break begins a new paragraph
  std::vector<std::string> examples = {};  ///< command lines
  std::vector<HelpSection> sections = {};
};

std::string render(const HelpPage& page);

}  // namespace colonnade::config
