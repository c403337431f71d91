# SPDX-License-Identifier: GPL-2.0
"""How Sphinx makes the site of these pages: `make docs`."""

project = "ferroce"
author = "the ferroce developers"
project_copyright = author
html_theme = "alabaster"
html_theme_options = {
    "description": "a software RDMA device for Linux",
    "fixed_sidebar": True,
    "page_width": "1100px",
    "sidebar_collapse": True,
}
html_sidebars = {"**": ["about.html", "searchbox.html", "navigation.html"]}
html_show_sourcelink = False
html_copy_source = False
# The manual page, which scripts/docs makes.
html_extra_path = ["../build/docs/man"]
