"""Numbers at arXiv of the papers that the rows name by author and year."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

HOSTS: Mapping[str, str] = MappingProxyType({
    "arXiv": "https://arxiv.org/abs/", "kexue": "https://kexue.fm/archives/",
})
"""Addresses of papers and essays, before their number: only links, which nothing loads by itself."""

PAPERS: Mapping[str, str] = MappingProxyType({
    "Ainslie et al. 2023": "2305.13245",
    "Ba et al. 2016": "1607.06450",
    "Bachlechner et al. 2020": "2003.04887",
    "Chen & Wei 2026": "2601.19895",
    "DeepNet: Wang et al. 2022": "2203.00555",
    "Derf: Chen et al. 2025": "2512.10938",
    "Devlin et al. 2018": "1810.04805",
    "Dey et al. 2025": "2505.01618",
    "Dong et al. 2021": "2103.03404",
    "Gemma Team 2024": "2408.00118",
    "He et al. 2015": "1512.03385",
    "He et al. 2015, backward form, eq. 14": "1502.01852",
    "He et al. 2015, eq. 10": "1502.01852",
    "He et al. 2020": "2012.11747",
    "He et al. 2024": "2405.19279",
    "Hendrycks & Gimpel 2016": "1606.08415",
    "Henry et al. 2020": "2010.04245",
    "Hu et al. 2024": "2404.06395",
    "Hägele et al. 2024": "2405.18392",
    "Jacot et al. 2018": "1806.07572",
    "Kazemnejad et al. 2023": "2305.19466",
    "Kim et al. 2025": "2502.02732",
    "Kimi K2, Bai et al. 2025": "2507.20534",
    "Kimi Team 2026": "2603.15031",
    "Kingma & Ba 2014": "1412.6980",
    "Klambauer et al. 2017": "1706.02515",
    "Liu et al. 2019": "1908.03265",
    "Liu et al. 2020": "2004.08249",
    "Llama Team 2024": "2407.21783",
    "Loshchilov & Hutter 2016": "1608.03983",
    "Loshchilov & Hutter 2017": "1711.05101",
    "Loshchilov et al. 2024": "2410.01131",
    "Magneto: Wang et al. 2022": "2210.06423",
    "Moonlight: Liu et al. 2025": "2502.16982",
    "Nakanishi 2025": "2501.19399",
    "OLMo 2 2025": "2501.00656",
    "OLMo Team 2024": "2501.00656",
    "Pascanu et al. 2012": "1211.5063",
    "Poole et al. 2016": "1606.05340",
    "Press & Wolf 2017": "1608.05859",
    "Press et al. 2022": "2108.12409",
    "Qiu et al. 2025": "2505.06708",
    "Raffel et al. 2020": "1910.10683",
    "Schoenholz et al. 2016": "1611.01232",
    "Shazeer 2020": "2002.05202",
    "Shleifer et al. 2021": "2110.09456",
    "Su et al. 2021": "2104.09864",
    "Touvron et al. 2021": "2103.17239",
    "Vaswani et al. 2017": "1706.03762",
    "Xie et al. 2025": "2512.24880",
    "Xiong et al. 2020": "2002.04745",
    "Yang et al. 2022": "2203.03466",
    "Zhai et al. 2023": "2303.06296",
    "Zhang & Sennrich 2019": "1910.07467",
    "Zhang et al. 2019": "1901.09321",
    "Zhou et al. 2024": "2410.17897",
    "Zhu et al. 2024": "2409.19606",
    "Zhu et al. 2025": "2503.10622",
})
"""Author and year, with as much around them as tells two papers apart, to the number."""
_LONGEST_FIRST = sorted(PAPERS, key=len, reverse=True)


def cited(source: str) -> str:
    """A source with the numbers of its papers: 'Xiong et al. 2020, arXiv 2002.04745'."""
    return ";".join(map(_numbered, source.split(";")))


def _numbered(part: str) -> str:
    key = next((key for key in _LONGEST_FIRST if key in part), "")
    if not key or "arXiv" in part:
        return part
    before, _, after = part.partition(key)
    return f"{before}{key}, arXiv {PAPERS[key]}{after}"
